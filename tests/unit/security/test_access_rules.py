"""Who may call what: the whole table, and what else is looked at before anybody gets in."""

import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from laser_vfl.core.errors import IdentityError, LimitExceeded
from laser_vfl.security.access import ACCESS, AdmittedCall, Authorizer, Caller, calling_as, identify
from laser_vfl.security.certificate_files import init_authority, issue
from laser_vfl.security.credentials import CredentialFiles, Credentials, load_credentials
from laser_vfl.security.identity import Identity, client_of, coordinator_of
from laser_vfl.v1 import coordinator_pb2, peer_pb2, prediction_pb2

BANK, SHOP = client_of("churn", "bank"), client_of("churn", "shop")
COORDINATOR = coordinator_of("churn")
OPERATOR = Identity("churn", "operator", "ann")
CRM = Identity("churn", "application", "crm", "bank")
OTHER_CRM = Identity("churn", "application", "crm", "shop")
FOREIGN = client_of("other", "shop")
PARTIES = [BANK, SHOP, COORDINATOR, OPERATOR, CRM, OTHER_CRM, FOREIGN]

CLIENTS_DUTIES = ["Register", "Commit", "SubmitIds", "FetchAlignment", "RefuseAlignment"]
CLIENTS_DUTIES += ["DryRun", "Session"]
ALLOWED = {
    **{f"/laser_vfl.v1.Coordinator/{name}": {BANK, SHOP} for name in CLIENTS_DUTIES},
    "/laser_vfl.v1.Coordinator/Retrain": {COORDINATOR, OPERATOR},
    "/laser_vfl.v1.Coordinator/ApproveRun": {COORDINATOR, OPERATOR},
    "/laser_vfl.v1.Coordinator/RejectRun": {COORDINATOR, OPERATOR},
    "/laser_vfl.v1.Coordinator/CancelRun": {COORDINATOR, OPERATOR},
    "/laser_vfl.v1.Coordinator/GetStatus": {COORDINATOR, OPERATOR, BANK, SHOP},
    "/laser_vfl.v1.Coordinator/Greet": {COORDINATOR, BANK, SHOP},
    "/laser_vfl.v1.Peer/Greet": {BANK, SHOP},
    "/laser_vfl.v1.Peer/Exchange": {SHOP},
    "/laser_vfl.v1.Peer/Represent": {SHOP},
    "/laser_vfl.v1.Peer/HandOn": {SHOP},
    "/laser_vfl.v1.Prediction/Predict": {BANK, CRM},
    "/laser_vfl.v1.Prediction/GetClientStatus": {BANK, CRM},
    "/laser_vfl.v1.Prediction/Align": {BANK},
    "/laser_vfl.v1.Prediction/Publish": {BANK},
    "/grpc.health.v1.Health/Check": {BANK, SHOP, COORDINATOR, OPERATOR, CRM},
    "/grpc.health.v1.Health/Watch": set(),
}
"""Who may call what of the coordinator, and of the bank."""


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Certificates of everybody but the foreigner, who has one of his own federation."""
    folder, now = tmp_path_factory.mktemp("certs"), datetime.now(UTC)
    issue(init_authority(folder, "churn", now=now), folder, PARTIES[:-1], now=now)
    foreign = folder / "foreign"
    issue(init_authority(foreign, "other", now=now), foreign, [FOREIGN], now=now)
    return folder


@pytest.fixture(scope="module")
def credentials(certs):
    files = CredentialFiles(certs / "bank.pem", certs / "bank.key", certs / "ca.pem")
    return load_credentials(files, BANK)


def pem_of(certs: Path, identity: Identity) -> bytes:
    names = {BANK: "bank", SHOP: "shop", COORDINATOR: "coordinator", OPERATOR: "operator-ann"}
    names |= {CRM: "bank-crm", OTHER_CRM: "shop-crm", FOREIGN: "foreign/shop"}
    return (certs / f"{names[identity]}.pem").read_bytes()


class Context:
    """A connection as gRPC tells of it."""

    def __init__(self, pem=b"", *uris, version=b"TLSv1.3", metadata=()):
        self._auth = {"ssl_tls_version": [version], "x509_pem_cert": [pem]}
        if uris:
            self._auth["peer_spiffe_id"] = [uri.encode() for uri in uris]
        self._metadata = metadata

    def auth_context(self):
        return self._auth

    def invocation_metadata(self):
        return self._metadata


def context_of(certs, identity):
    return Context(pem_of(certs, identity), identity.uri)


def test_the_table_has_every_call_and_no_other():
    protos = (coordinator_pb2, peer_pb2, prediction_pb2)
    served = {
        f"/{service.full_name}/{method.name}"
        for proto in protos
        for service in proto.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert {method for method in ACCESS if not method.startswith("/grpc.health.")} == served
    assert {method for method, parties in ALLOWED.items() if parties} == ACCESS.keys()


@pytest.mark.parametrize("caller", PARTIES, ids=str)
@pytest.mark.parametrize("method", ALLOWED)
def test_the_whole_table(method, caller, certs):
    owner = "coordinator" if "Coordinator" in method else "bank"
    files = CredentialFiles(certs / f"{owner}.pem", certs / f"{owner}.key", certs / "ca.pem")
    authorizer = Authorizer(load_credentials(files))
    context = context_of(certs, caller)
    if caller in ALLOWED[method]:
        with authorizer.admit(method, context) as admitted:
            assert admitted.caller == caller
    else:
        with pytest.raises(IdentityError), authorizer.admit(method, context):
            pytest.fail("it was let in")


def refused(authorizer, context, method="/laser_vfl.v1.Peer/Exchange"):
    with pytest.raises(IdentityError) as caught, authorizer.admit(method, context):
        pytest.fail("it was let in")
    return caught.value.message


@pytest.mark.parametrize(
    ("uris", "version", "said"),
    [
        ((), b"TLSv1.3", "names nobody"),
        (("spiffe://churn/client/shop", "spiffe://churn/client/bank"), b"TLSv1.3", "names nobody"),
        (("spiffe://churn/client/SHOP",), b"TLSv1.3", "names nobody"),
        (("spiffe://other/client/shop",), b"TLSv1.3", "of another federation"),
        (("spiffe://churn/client/shop",), b"TLSv1.2", "only TLS 1.3"),
        (("spiffe://churn/client/shop",), b"", "only TLS 1.3"),
    ],
)
def test_a_certificate_that_a_handshake_let_through(uris, version, said, certs, credentials):
    context = Context(pem_of(certs, SHOP), *uris, version=version)
    assert said in refused(Authorizer(credentials), context)


def test_who_has_expired_meanwhile_begins_no_new_call(certs, tmp_path):
    long_ago = datetime.now(UTC) - timedelta(days=40)
    issue(init_authority(tmp_path, "churn", now=long_ago), tmp_path, [BANK, SHOP], now=long_ago)
    files = CredentialFiles(tmp_path / "bank.pem", tmp_path / "bank.key", tmp_path / "ca.pem")
    context = Context((tmp_path / "shop.pem").read_bytes(), SHOP.uri)
    assert "has expired" in refused(Authorizer(load_credentials(files)), context)


def test_an_organisations_authority_vouches_for_nobody_else(tmp_path):
    now = datetime.now(UTC)
    for name in ("bank", "shop"):
        folder = tmp_path / name
        issue(
            init_authority(folder, "churn", name, now=now),
            folder,
            [client_of("churn", name)],
            now=now,
        )
    authorities = {name: tmp_path / name / "ca.pem" for name in ("bank", "shop")}
    own = tmp_path / "bank"
    files = CredentialFiles(own / "bank.pem", own / "bank.key", authorities=authorities)
    authorizer = Authorizer(load_credentials(files, BANK))
    shop = (tmp_path / "shop" / "shop.pem").read_bytes()
    with authorizer.admit("/laser_vfl.v1.Peer/Exchange", Context(shop, SHOP.uri)) as admission:
        assert admission.caller == SHOP
    # gRPC tells the identity that the certificate claims; whoever signed it may have lied.
    authorizer = Authorizer(load_credentials(files, BANK))
    assert "may not vouch for" in refused(
        authorizer, Context((own / "bank.pem").read_bytes(), SHOP.uri)
    )
    assert "may not vouch" in refused(authorizer, Context(shop, client_of("churn", "telco").uri))


def test_only_the_applications_that_are_named(certs, credentials):
    method = "/laser_vfl.v1.Prediction/Predict"
    with Authorizer(credentials, applications=["crm"]).admit(method, context_of(certs, CRM)):
        pass
    authorizer = Authorizer(credentials, applications=["web"])
    assert "may not call Predict" in refused(authorizer, context_of(certs, CRM), method)


def test_a_token_takes_the_place_of_a_certificate(credentials):
    owners = {"a" * 32: "crm", "b" * 32: "web"}

    def tokens(shown):
        if shown not in owners:
            raise IdentityError("the token is none of those")
        return owners[shown]

    authorizer = Authorizer(credentials, tokens=tokens)
    method = "/laser_vfl.v1.Prediction/Predict"

    def shown(token):
        return Context(metadata=[("authorization", token)])

    with authorizer.admit(method, shown("Bearer " + "b" * 32)) as admission:
        assert admission.caller == Identity("churn", "application", "web", "bank")
    for token in ("", "Bearer", "Bearer ", "Bearer " + "c" * 32, "Bearer " + "b" * 31, "ä"):
        assert "the token is none" in refused(authorizer, shown(token), method)
    assert "the token is none" in refused(authorizer, Context(), method)
    assert "may not call Align" in refused(
        authorizer, shown("Bearer " + "a" * 32), "/laser_vfl.v1.Prediction/Align"
    )


def test_so_many_calls_at_once_and_no_more(certs, credentials):
    authorizer, method = Authorizer(credentials), "/laser_vfl.v1.Peer/Exchange"
    with ExitStack() as under_way:
        for _ in range(8):
            under_way.enter_context(authorizer.admit(method, context_of(certs, SHOP)))
        with pytest.raises(LimitExceeded), authorizer.admit(method, context_of(certs, SHOP)):
            pytest.fail("it was let in")
        with authorizer.admit("/laser_vfl.v1.Peer/Represent", context_of(certs, SHOP)):
            pass
    with authorizer.admit(method, context_of(certs, SHOP)):
        pass
    assert not authorizer._num_calls


def test_so_many_calls_in_a_time_and_no_more(certs, credentials, monkeypatch):
    """Who calls too often is told when to come back, and is let in then."""
    method, now = "/laser_vfl.v1.Coordinator/Register", [1000.0]
    monkeypatch.setattr("laser_vfl.security.access.time.monotonic", lambda: now[0])
    authorizer, shop = Authorizer(credentials), context_of(certs, SHOP)
    rate = ACCESS[method].rate
    for _ in range(int(rate.burst)):
        with authorizer.admit(method, shop):
            pass
    with pytest.raises(LimitExceeded) as refused, authorizer.admit(method, shop):
        pass
    assert refused.value.retry_after_s == pytest.approx(1 / rate.per_s)
    with authorizer.admit("/laser_vfl.v1.Coordinator/GetStatus", shop):
        pass
    now[0] += refused.value.retry_after_s
    with authorizer.admit(method, shop):
        pass


def test_without_tls_a_caller_is_who_it_says_it_is():
    authorizer = Authorizer(Credentials("churn"))
    with authorizer.admit("/laser_vfl.v1.Peer/Exchange", None) as admission:
        assert admission == AdmittedCall()
        assert identify("bank") == Caller("bank", is_certified=False)
    with pytest.raises(IdentityError), authorizer.admit("/laser_vfl.v1.Peer/Unheard", None):
        pytest.fail("nobody may call what is not in the table")


def test_with_tls_a_caller_is_whom_its_certificate_names():
    with calling_as(BANK):
        assert identify("bank") == Caller("bank", is_certified=True)
        for claimed in ("shop", "", "Bank", "bank ", "bank\n"):
            with pytest.raises(IdentityError, match=re.escape(f"names {BANK}, not")) as caught:
                identify(claimed)
            assert str(caught.value).isprintable()
    for nobody in (COORDINATOR, OPERATOR, Identity("churn", "operator", "bank"), CRM):
        with calling_as(nobody), pytest.raises(IdentityError):
            identify(nobody.name)
