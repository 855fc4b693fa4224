"""A client with noise serves peers: the noise is there, is secret, and stays whoever asks again."""

import numpy as np
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.own_models import NO_MODELS
from laser_vfl.client.privacy_budget import epsilon
from laser_vfl.client.serving.models.published_model import load_published
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import load_block
from laser_vfl.config.loading import load_config
from laser_vfl.data import blind_ids, read_secret
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site

WIDTH, EPOCHS = 200, 2
"""So wide that the whole table's noise is drawn in the serving thread, and one row's is not."""


def test_noise_in_answers_to_peers(site: Site) -> None:
    privacy = {"clip": 0.5, "noise": 4.0, "delta": 1e-6}
    training = {"representation_dim": WIDTH, "epochs": EPOCHS}
    federation = Federation(site, ["bank", "shop"], training, alignment="hmac", privacy=privacy)
    config = load_config(site.path / "shop.yaml", ClientConfig)
    secret = read_secret(site.path / "id.secret")
    run = federation.runs()[0]
    model = load_published(
        config, StateDirectory(config.state), run, NO_MODELS, torch.device("cpu")
    )
    table = load_block(config, secret).test
    assert table is not None
    own_nd = model.represent(table.inputs)
    expected_nd = model.released(own_nd, table.digests, table.inputs)
    assert own_nd.norm(dim=1).max() <= 0.5 + 1e-6
    assert 1.9 < (expected_nd - own_nd).std().item() < 2.1

    digests = blind_ids(table.ids, secret, site.federation)
    questions = [digests, digests[:1], digests[:1], digests[3:9]]
    requests = [
        pb.RepresentRequest(run=run, sender="bank", digests=part.tobytes()) for part in questions
    ]
    assert site.authority is not None
    address = federation.clients["shop"].wait_ready()
    with site.authority.channel(address, "shop", "bank") as channel:
        answers = [
            np.frombuffer(answer.representations.data, np.float32).reshape(-1, WIDTH)
            for answer in PeerStub(channel).Represent(iter(requests), timeout=10)
        ]
    parts = [expected_nd, expected_nd[:1], expected_nd[:1], expected_nd[3:9]]
    for answer, part in zip(answers, parts, strict=True):
        assert np.allclose(answer, part.numpy(), atol=1e-5)

    num_releases = EPOCHS + 1
    assert federation.manifest("shop")["privacy"] == {
        **privacy,
        "num_releases": num_releases,
        "epsilon_per_release": epsilon(4.0, 1, 1e-6),
        "epsilon": epsilon(4.0, num_releases, 1e-6),
    }
    said = f"and {epsilon(4.0, num_releases, 1e-6):.4g} for the {num_releases} of this run"
    assert said in federation.clients["shop"].stderr
