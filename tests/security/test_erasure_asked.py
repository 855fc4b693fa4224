"""Nobody who may ask a client can tell who is erased there from who was never held."""

import subprocess
import sys

import numpy as np
import pytest

from laser_vfl.data import blind_ids, read_secret
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from tests.support.attacks.attack_results import Results
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site, eventually

ERASED, STRANGER, HELD = "person-00070", "nobody at all", "person-00071"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scheme", ["ecdh", "hmac"])
def test_somebody_erased_is_answered_like_a_stranger(
    scheme: str, site: Site, results: Results
) -> None:
    more = {"serving": {"align_requests": False}}
    federation = Federation(site, ["bank", "shop"], {"epochs": 1}, alignment=scheme, **more)
    federation.wait_whole()
    (site.path / "people.csv").write_text(f"id\n{ERASED}\n")
    command = ["-m", "laser_vfl", "forget", "--config", "shop.yaml", "--ids", "people.csv"]
    subprocess.run([sys.executable, *command], cwd=site.path, check=True, timeout=60)

    with federation.predictor("shop") as predictor:
        eventually(lambda: predictor.predict([ERASED]).errors[0], "shop has forgotten")
        found = predictor.predict([ERASED, STRANGER, HELD])
        assert found.errors[0] == found.errors[1]
        assert found.errors[2] is None
        features = {f"x{j}": [0.5] for j in range(5)}
        erased, stranger = (predictor.predict([id], features=features) for id in (ERASED, STRANGER))
        assert erased.errors == stranger.errors == (None,)
        assert erased.peers == stranger.peers
        assert stranger.blocks.tolist() == [[False, True]]
        if scheme == "ecdh":
            assert erased.blocks.tolist() == [[False, True]]
            assert np.array_equal(erased.probabilities, stranger.probabilities)
        else:  # bank holds the person, and says so of anybody whom it holds
            assert erased.blocks.tolist() == [[True, True]]
    if scheme == "hmac":
        _check_peer(federation)
    results.note("asks who is erased", "the same answers")


def _check_peer(federation: Federation) -> None:
    """Bank may ask for anybody by a digest, and is told of those whom shop holds."""
    site, run = federation.site, federation.runs()[0]
    secret = read_secret(site.path / "id.secret")
    digests = blind_ids([ERASED, STRANGER, HELD], secret, site.federation)
    request = pb.RepresentRequest(run=run, sender="bank", digests=digests.tobytes())
    assert site.authority is not None
    address = federation.clients["shop"].wait_ready()
    with site.authority.channel(address, "shop", "bank") as channel:
        (answer,) = PeerStub(channel).Represent(iter([request]), timeout=10)
    assert np.frombuffer(answer.places, "<u4").tolist() == [2]
