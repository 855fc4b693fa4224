"""Who calls: the certificate has the last word, and a lie is not believed."""

import pytest

from laser_vfl.core.errors import IdentityError
from laser_vfl.wire.identity import Caller, caller_name, identify


class Context:
    """A connection as gRPC tells of it."""

    def __init__(self, **auth):
        self._auth = auth

    def auth_context(self):
        return self._auth


def certified(*names):
    return Context(transport_security_type=[b"ssl"], x509_common_name=list(names))


def test_without_tls_a_caller_is_who_it_says_it_is():
    for context in (Context(), Context(transport_security_type=[b"insecure"])):
        assert caller_name(context) is None
        assert identify("bank", context) == Caller("bank", is_certified=False)


def test_with_tls_a_caller_is_whom_its_certificate_names():
    context = certified(b"bank")
    assert caller_name(context) == "bank"
    assert identify("bank", context) == Caller("bank", is_certified=True)


@pytest.mark.parametrize("claimed", ["shop", "", "Bank", "bank ", "bank\n"])
def test_nobody_passes_for_another(claimed):
    with pytest.raises(IdentityError, match='the certificate names "bank"') as caught:
        identify(claimed, certified(b"bank"))
    assert str(caught.value).isprintable()


def test_a_certificate_without_a_name_is_nobodys():
    context = Context(transport_security_type=[b"ssl"])
    assert caller_name(context) == ""
    with pytest.raises(IdentityError):
        identify("bank", context)


def test_a_name_that_is_no_text_is_nobodys():
    with pytest.raises(IdentityError):
        identify("bank", certified(b"\xffbank"))


def test_a_name_in_an_unencrypted_connection_does_not_count():
    context = Context(x509_common_name=[b"bank"])
    assert identify("shop", context) == Caller("shop", is_certified=False)
