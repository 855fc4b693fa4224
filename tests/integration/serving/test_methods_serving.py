"""Each method's daemons predict what the oracle's models say, from the blocks that replies name."""

import math
import signal
from collections import Counter
from functools import cached_property

import numpy as np
import polars as pl
import pytest
import torch

from laser_vfl.core.errors import NotReady
from laser_vfl.core.subsets import mask_of
from laser_vfl.data import blind_ids, read_secret
from laser_vfl.transport.prediction_replies import Predictions
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People
from tests.support.oracle.single_process import SingleProcess, single_process

ROSTER = ("bank", "shop", "telco")
ASKED = {
    "local": set(),
    "standard": {("shop", "bank"), ("telco", "bank")},
    "ensemble": {(a, b) for a in ROSTER for b in ROSTER if a != b},
    "combinatorial": {("bank", "shop"), ("shop", "bank"), ("telco", "bank"), ("telco", "shop")},
    "plug": {("shop", "bank"), ("telco", "bank")},
}
"""Who answers whom when asked for representations."""

CORE = "combinatorial"
"""The method in which most clients ask others."""


class Served:
    """Three clients that have trained by a method; the last has no labels, but where all vote."""

    def __init__(self, site: Site, method: str) -> None:
        self.site = site
        self.method = method
        self.labels = dict.fromkeys(ROSTER, "kind")
        if method != "ensemble":
            del self.labels["telco"]
        people = People(160, seed=11)
        for name in ROSTER:
            label = self.labels.get(name)
            people.write(site.path, name, label=label, p_hold=0.8, test_share=0.3)
        training = {"method": method, "batch_size": 20, "epochs": 6}
        site.start_coordinator(site.coordinator_config(ROSTER, training, alignment="hmac"))
        self.clients = {name: self._start(name) for name in ROSTER}
        for client in self.clients.values():
            client.wait_for_served()

    @cached_property
    def alone(self) -> SingleProcess:
        alone = single_process(self.site.path)
        alone.oracle.run()
        return alone

    @cached_property
    def ids(self) -> dict[str, list[str]]:
        paths = {name: self.site.path / f"{name}_test.csv" for name in ROSTER}
        return {name: pl.read_csv(path)["id"].to_list() for name, path in paths.items()}

    def start(self, name: str) -> None:
        self.clients[name] = self._start(name)

    def kill(self, name: str) -> None:
        self.clients[name].signal(signal.SIGKILL)
        self.clients[name].wait_exit()

    def blocks(self, sample: str, up: set[str]) -> tuple[str, ...]:
        """From whose blocks bank should predict a sample."""
        held = tuple(n for n in ROSTER if n == "bank" or (n in up and sample in self.ids[n]))
        if self.method == "local":
            return ("bank",)
        return () if self.method == "standard" and held != ROSTER else held

    def outputs(self, sample: str, blocks: tuple[str, ...]) -> torch.Tensor:
        """What the oracle's models say of a sample, one prediction at a time."""
        places = [ROSTER.index(name) for name in blocks]
        fusion = self.alone.learners[0].models["fusion"]
        parts = [self._models(k) for k in places]
        if self.method == "combinatorial":
            mask = mask_of(places)
            parts, fusion = [part.by_subset[mask] for part in parts], fusion.by_subset[mask]
        for k in places:
            self.alone.learners[k].models.eval()
        with torch.no_grad():
            rows = [part(self._row(k, sample)) for k, part in zip(places, parts, strict=True)]
            num = len(ROSTER) if self.method == "plug" else len(rows)
            return fusion(sum(rows) / num)[0]  # type: ignore[no-any-return]

    def votes(self, sample: str, blocks: tuple[str, ...]) -> Counter[int]:
        """How often the oracle's local predictors choose each class."""
        votes = []
        for name in blocks:
            models = self.alone.learners[ROSTER.index(name)].models.eval()
            row = models["representation"](self._row(ROSTER.index(name), sample))
            votes.append(int(models["fusion"](row).argmax()))
        return Counter(votes)

    def settled(self, up: set[str]) -> Predictions:
        """Predict at bank as soon as exactly these are known to be there."""
        ids = self.ids["bank"]
        expected = [",".join(self.blocks(sample, up)) for sample in ids]
        with self.clients["bank"].predictor(5.0) as predictor:

            def asked() -> Predictions | None:
                predictions = predictor.predict(ids)
                assert predictions.errors == (None,) * len(ids)
                return predictions if predictions.block_names == expected else None

            return eventually(asked, f"bank uses the blocks of {', '.join(sorted(up))}", 30)

    def _models(self, client: int) -> torch.nn.Module:
        return self.alone.learners[client].models["representation"]

    def _row(self, client: int, sample: str) -> torch.Tensor:
        table = self.alone.blocks[client].test
        assert table is not None
        return table.inputs[[list(table.ids).index(sample)]]

    def _start(self, name: str) -> Process:
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        if label := self.labels.get(name):
            data["label"] = label
        optimizer = {"name": "adam", "lr": 0.01}
        config = self.site.client_config(name, data=data, optimizer=optimizer)
        return self.site.start_client(config)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=[pytest.mark.core] if m == CORE else []) for m in ASKED],
)
def test_predictions_are_the_oracles_whoever_is_up(method: str, site: Site) -> None:
    served = Served(site, method)
    with served.clients["bank"].predictor() as predictor:
        run = predictor.status()["model"]["run"]
    everybody = served.settled(set(ROSTER))
    check(served, everybody, set(ROSTER))
    assert everybody.peers == ({} if method == "local" else {"shop": "", "telco": ""})
    check_who_is_answered(served, run)
    if method in ("standard", "plug"):
        for name in ("shop", "telco"):
            with (
                served.clients[name].predictor() as predictor,
                pytest.raises(NotReady, match=f"{name} has no head to predict with; ask bank$"),
            ):
                predictor.predict(served.ids[name])

    assert served.clients["bank"].terminate() == 0
    served.start("bank")
    again = served.settled(set(ROSTER))
    check(served, again, set(ROSTER))
    assert again.run == run

    served.kill("telco")
    check(served, served.settled({"bank", "shop"}), {"bank", "shop"})
    assert "Traceback" not in site.report()


def check(served: Served, predictions: Predictions, up: set[str]) -> None:
    """Compare with the oracle what is said of each sample."""
    assert predictions.classes.tolist() == ["blue", "green", "red"]
    assert predictions.probabilities is not None
    scores = served.alone.scores(0)["by_subset"]
    found = zip(
        predictions.ids,
        predictions.labels,
        predictions.probabilities,
        predictions.expected_scores,
        strict=True,
    )
    seen = Counter[tuple[str, ...]]()
    for sample, label, probabilities, score in found:
        blocks = served.blocks(sample, up)
        seen[blocks] += 1
        if not blocks:
            assert math.isnan(score), "nobody knows how well a guess does"
            continue
        assert score == pytest.approx(scores[",".join(blocks)]["accuracy"], nan_ok=True)
        if served.method == "ensemble":
            votes = served.votes(sample, blocks)
            shares = [votes[k] / len(blocks) for k in range(3)]
            np.testing.assert_allclose(probabilities, shares, atol=3e-3)
            best = [k for k in range(3) if votes[k] == max(votes.values())]
            assert label in predictions.classes[best]
            continue
        expected = served.outputs(sample, blocks).softmax(dim=0).numpy()
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        assert label == predictions.classes[probabilities.argmax()]
    num_sets = {"local": 1, "standard": 2 if len(up) == 3 else 1}.get(served.method, 2)
    assert len(seen) >= num_sets
    if served.method == "standard" and len(up) < 3:
        assert set(seen) == {()}
        assert len(set(predictions.labels)) == 3, "guesses are not all the same"


def check_who_is_answered(served: Served, run: str) -> None:
    """Ask as everybody everybody for everything: only who predicts with a block is given it."""
    site = served.site
    assert site.authority is not None
    ids = [sample for ids in served.ids.values() for sample in ids]
    digests = blind_ids(sorted(set(ids)), read_secret(site.path / "id.secret"), site.federation)
    answered = set()
    for asked in ROSTER:
        address = served.clients[asked].wait_ready()
        for asker in ROSTER:
            if asker == asked:
                continue
            request = pb.RepresentRequest(run=run, sender=asker, digests=digests.tobytes())
            with site.authority.channel(address, asked, asker) as channel:
                (response,) = PeerStub(channel).Represent(iter([request]), timeout=5.0)
            assert not response.other_run
            if response.places:
                answered.add((asked, asker))
                assert len(response.places) == 4 * len(served.ids[asked])
    assert answered == ASKED[served.method]
