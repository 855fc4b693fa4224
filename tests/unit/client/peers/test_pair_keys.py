"""Two processes agree on a key that nobody else has."""

import pytest

from laser_vfl.client.peers.pair_keys import PairKeys
from laser_vfl.client.session.member_view import Peer
from laser_vfl.core.errors import ContractError

BANK, SHOP, CLUB = (
    Peer(k, name, 10 + k, f"{name}:1") for k, name in enumerate(("bank", "shop", "club"))
)


def agreed(run="run", bank=BANK, shop=SHOP):
    one, other = PairKeys(run, bank), PairKeys(run, shop)
    one.agree(shop, other.public)
    other.agree(bank, one.public)
    return one, other


def test_both_ends_have_the_same_key_and_no_other_pair_has_it():
    bank, shop = agreed()
    club = PairKeys("run", CLUB)
    club.agree(BANK, bank.public)
    bank.agree(CLUB, club.public)
    assert bank.key_of(SHOP) == shop.key_of(BANK)
    assert bank.key_of(CLUB) == club.key_of(BANK) != bank.key_of(SHOP)


def test_who_is_taken_for_somebody_else_gets_another_key():
    bank, shop = PairKeys("run", BANK), PairKeys("run", SHOP)
    bank.agree(SHOP, shop.public)
    shop.agree(Peer(0, "bank", 99, "bank:1"), bank.public)
    assert bank.key_of(SHOP) != shop.key_of(Peer(0, "bank", 99, "bank:1"))


def test_a_stream_that_comes_again_has_the_same_key_and_no_other():
    bank, shop = agreed()
    key = bank.key_of(SHOP)
    bank.agree(SHOP, shop.public)
    assert bank.key_of(SHOP) == key
    with pytest.raises(ContractError, match="changed its public key"):
        bank.agree(SHOP, PairKeys("run", SHOP).public)


@pytest.mark.parametrize("public", [b"", b"short", bytes(32), bytes(33)])
def test_what_is_no_key_is_refused(public):
    with pytest.raises(ContractError, match="no usable public key"):
        PairKeys("run", BANK).agree(SHOP, public)
