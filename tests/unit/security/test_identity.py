"""Who a certificate names, and who may vouch for that."""

import pytest

from laser_vfl.security.identity import Identity, client_of, coordinator_of, parse_identity

KINDS = {
    "spiffe://churn/coordinator": (coordinator_of("churn"), "coordinator.churn", "coordinator"),
    "spiffe://churn/client/bank": (client_of("churn", "bank"), "bank.client.churn", "bank"),
    "spiffe://churn/operator/ann": (Identity("churn", "operator", "ann"), "", "coordinator"),
    "spiffe://churn/client/bank/application/crm": (
        Identity("churn", "application", "crm", "bank"),
        "",
        "bank",
    ),
}


@pytest.mark.parametrize("uri", KINDS)
def test_there_and_back(uri):
    identity, dns, voucher = KINDS[uri]
    assert parse_identity(uri) == identity
    assert (identity.uri, str(identity), identity.dns, identity.voucher) == (uri, uri, dns, voucher)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://churn",
        "spiffe://churn/client",
        "spiffe://churn/client/",
        "spiffe://churn/client/bank/",
        "spiffe://churn/client/bank\n",
        "spiffe://churn/client/BANK",
        "spiffe://churn/client/bank/application",
        "spiffe://churn/coordinator/bank",
        "spiffe://churn/client/bank?x",
        "spiffe:///client/bank",
        "https://churn/client/bank",
        "spiffe://churn/client/../coordinator",
    ],
)
def test_anything_else_is_nobody(uri):
    assert parse_identity(uri) is None
