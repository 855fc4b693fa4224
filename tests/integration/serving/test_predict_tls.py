"""Predictions beyond loopback: over mutual TLS only. And a federation of one, by the way."""

import pytest

from laser_vfl import Predictor
from laser_vfl.core.errors import AddressError
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site


def test_an_address_that_others_can_reach_demands_a_certificate(site: Site) -> None:
    assert site.authority is not None
    alone = Federation(site, ["bank"], {}, predict_listen="0.0.0.0:0")
    bound = alone.clients["bank"].wait_predict()
    assert bound.startswith("0.0.0.0:")
    address = bound.replace("0.0.0.0", "127.0.0.1")
    tls = site.authority.issue("bank/crm")
    with Predictor(address, ca=tls["ca"], cert=tls["cert"], key=tls["key"]) as predictor:
        answer = predictor.predict(alone.ids)
    assert answer.roster == ("bank",)
    assert answer.blocks.all()
    assert not any(answer.errors)
    with Predictor(address) as predictor, pytest.raises(AddressError):
        predictor.predict(alone.ids)


def test_such_an_address_without_tls_is_refused_at_the_start(plain_site: Site) -> None:
    config = plain_site.client_config("bank", predict_listen="0.0.0.0:0")
    bank = plain_site.start_client(config)
    assert bank.wait_exit() == 5
    (line,) = bank.stderr.splitlines()
    assert line.startswith("--insecure works only on loopback, and predict_listen is 0.0.0.0:0")
