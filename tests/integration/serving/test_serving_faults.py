"""Serving under faults: stopped, killed and restarted peers, no coordinator, limits, a crowd."""

import queue
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import polars as pl
import psutil
import pytest

from laser_vfl import Predictor
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.client.tables.pseudonym_table import NAME
from laser_vfl.data import blind_ids, read_secret
from laser_vfl.transport.prediction_replies import Predictions
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Authority, Process, Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop", "telco"]
DEADLINE_S = 1.0
HASTY_S = 0.5
LENIENCE = 1.8
"""How many deadlines a call may take on a busy machine: fewer than if somebody waited for two."""


@pytest.fixture(scope="module")
def served(shared_site: Site) -> Federation:
    for name in ROSTER:
        People(3, seed=9).write(shared_site.path, name, p_hold=1.0)
        (shared_site.path / f"{name}_train.csv").rename(shared_site.path / f"{name}_serve.csv")
        _serve_rows(shared_site.path, name, ["new-1"])
    return Federation(shared_site, ROSTER, {})


@pytest.fixture
def whole(served: Federation) -> Iterator[Federation]:
    """A federation in which everybody is well."""
    served.wait_whole()
    yield served
    for process in served.site.processes:
        assert "Traceback" not in process.stderr, process.name


@pytest.mark.core
def test_a_stopped_peer_costs_one_deadline_and_comes_back_by_itself(whole: Federation) -> None:
    telco = whole.clients["telco"]
    with whole.predictor("bank", DEADLINE_S) as predictor:
        try:
            telco.signal(signal.SIGSTOP)
            eventually(lambda: _is_stopped(telco), "telco is stopped")

            first, took_s = _timed(predictor, whole.ids)
            assert took_s <= LENIENCE * DEADLINE_S
            _check_without(first, "telco")
            assert first.peers["telco"].startswith("no answer")

            later = [_timed(predictor, whole.ids[:1]) for _ in range(30)]
            median_s = statistics.median(took_s for _, took_s in later)
            assert median_s <= 0.4 * DEADLINE_S, _peer(whole, "bank", "telco")
            for answer, _ in later:
                _check_without(answer, "telco")
                assert answer.peers["telco"].startswith("no answer")
            assert _peer(whole, "bank", "telco")["available"] is False
            assert _is_stopped(telco)
        finally:
            telco.signal(signal.SIGCONT)
        eventually(lambda: predictor.predict(whole.ids).blocks.all(), "telco is back", 20)
    assert telco.alive
    assert _peer(whole, "bank", "telco")["available"] is True


@pytest.mark.core
def test_a_killed_peer_goes_and_comes_back_at_another_port(whole: Federation) -> None:
    telco = whole.clients["telco"]
    old_address = _peer(whole, "bank", "telco")["address"]
    with whole.predictor("bank") as predictor:
        before = predictor.predict(whole.ids)
        telco.signal(signal.SIGKILL)
        assert telco.wait_exit() == -signal.SIGKILL
        without = predictor.predict(whole.ids)
        _check_without(without, "telco")
        assert without.peers["telco"]
        assert np.abs(without.probabilities - before.probabilities).max() > 1e-4

        new_address = whole.start("telco").wait_ready()
        assert new_address != old_address

        def again() -> bool:
            answer = predictor.predict(whole.ids)
            assert answer.errors == (None,) * len(whole.ids)
            return bool(answer.blocks.all())

        eventually(again, "telco is back")
        _check_equal(predictor.predict(whole.ids), before)
    assert _peer(whole, "bank", "telco")["address"] == new_address


def test_new_people_are_served_when_the_file_changes(whole: Federation) -> None:
    path = whole.site.path
    with whole.predictor("bank") as predictor:
        first = predictor.predict(["new-1", "new-2"])
        assert first.blocks.tolist() == [[True] * 3, [False] * 3]
        assert first.errors[0] is None
        assert first.errors[1] == "bank does not hold this sample"

        _serve_rows(path, "bank", ["new-1", "new-2"])
        _eventually_blocks(predictor, "new-2", "bank")
        _serve_rows(path, "shop", ["new-2"])
        _eventually_blocks(predictor, "new-2", "bank,shop")
        assert predictor.predict(["new-1"]).block_names == ["bank,telco"], "shop has let it go"

        old = predictor.predict(["new-2"])
        _serve_rows(path, "bank", ["new-1", "new-2"], seed=5)
        eventually(
            lambda: (predictor.predict(["new-2"]).probabilities != old.probabilities).any(),
            "other features give another prediction",
            10,
        )
    assert whole.status("bank")["serve_problem"] is None


BROKEN = {
    "id,x0\nnew-3,1\n": "x1",
    "id,x0,x1,x2,x3,x4\nnew-3,1,2,3,4,5\nnew-3,1,2,3,4,5\n": "the same id twice",
    "": "empty",
    None: "bank_serve.csv",
}
"""Serving tables that cannot be used, the last one removed; and what is said of them."""


def test_a_broken_serving_table_leaves_the_rows_as_they_were(whole: Federation) -> None:
    path = whole.site.path / "bank_serve.csv"
    rows = path.read_text()
    with whole.predictor("bank") as predictor:
        before = predictor.predict(["new-1", *whole.ids])
        assert before.errors[0] is None
        said = None
        try:
            for text, problem in BROKEN.items():
                if text is None:
                    path.unlink()
                else:
                    path.write_text(text)
                said = eventually(lambda old=said: _other_problem(whole, old), "a complaint", 10)
                assert problem in said
                assert "\n" not in said
                after = predictor.predict(["new-1", *whole.ids])
                assert after.errors == before.errors
                np.testing.assert_allclose(after.probabilities, before.probabilities, atol=1e-6)
        finally:
            path.write_text(rows)
        eventually(lambda: whole.status("bank")["serve_problem"] is None, "it is in order", 10)
        assert predictor.predict(["new-1"]).errors == (None,)


def test_a_hundred_callers_at_once_lose_nothing(whole: Federation) -> None:
    num_callers, num_requests = 100, 5
    with whole.predictor("bank") as predictor:
        right = {one: predictor.predict([one]) for one in whole.ids}
        before = whole.status("bank")
        others = [whole.predictor("bank") for _ in range(4)]

        def call(caller: int) -> list[Predictions]:
            using = [predictor, *others][caller % 5]
            return [
                using.predict([*_three(whole.ids, caller, number), f"nobody-{caller}"])
                for number in range(num_requests)
            ]

        with ThreadPoolExecutor(num_callers) as pool:
            answers = list(pool.map(call, range(num_callers)))
        for other in others:
            other.close()
        after = whole.status("bank")

    for caller, own in enumerate(answers):
        assert len(own) == num_requests
        for number, answer in enumerate(own):
            asked = _three(whole.ids, caller, number)
            assert answer.ids == (*asked, f"nobody-{caller}")
            assert answer.errors == (None, None, None, "bank does not hold this sample")
            assert answer.blocks[:3].all()
            expected = np.concatenate([right[one].probabilities for one in asked])
            np.testing.assert_allclose(answer.probabilities[:3], expected, atol=1e-5)

    total = num_callers * num_requests
    counted = {key: after[key] - before[key] for key in before if key.startswith("num_")}
    assert counted["num_requests"] == total
    assert counted["num_predicted"] == 3 * total
    assert counted["num_sample_errors"] == total
    assert Counter(after["subsets"]) - Counter(before["subsets"]) == {"bank,shop,telco": 3 * total}
    for old, new in zip(before["peers"], after["peers"], strict=True):
        assert new["num_wanted"] - old["num_wanted"] == 3 * total
        assert new["num_available"] - old["num_available"] == 3 * total


def test_a_client_alone_goes_on_and_survives_restarts(whole: Federation) -> None:
    """Last on this federation: nearly all of it is killed, and comes back."""
    site = whole.site
    with whole.predictor("bank") as predictor:
        together = predictor.predict(whole.ids)
        for process in (whole.clients["shop"], whole.clients["telco"], whole.coordinator):
            process.signal(signal.SIGKILL)
            assert process.wait_exit() == -signal.SIGKILL
        alone = predictor.predict(whole.ids)
    assert set(alone.block_names) == {"bank"}
    assert alone.run == together.run
    metrics, events = site.metrics("bank"), site.events()

    for number, exit_code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        whole.clients["bank"].signal(number)
        assert whole.clients["bank"].wait_exit() == exit_code
        bank = whole.start("bank")
        with whole.predictor("bank") as predictor:
            _check_equal(predictor.predict(whole.ids), alone)
        bank.wait_for("registering with the coordinator: ")
        bank.wait_for_served(together.run)

    whole.start_coordinator()
    whole.coordinator.wait_for("bank registered")
    for name in ("shop", "telco"):
        whole.start(name)
    whole.wait_whole()
    with whole.predictor("bank") as predictor:
        _check_equal(predictor.predict(whole.ids), together)
    assert whole.runs() == [together.run] * 3
    assert site.metrics("bank") == metrics, "nothing was trained"
    assert site.events() == events


def test_who_waits_for_ever_says_so_in_words(served: Federation) -> None:
    """After the test above: bank has waited for a coordinator, with a model to serve."""
    (line,) = [line for line in served.clients["bank"].stderr.splitlines() if "trying" in line]
    assert "registering with the coordinator: " in line
    assert "inf s" not in line


@pytest.fixture(scope="module")
def limited(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, pytestconfig: pytest.Config
) -> Iterator[Federation]:
    """Two clients that answer each other little."""
    with Site(tmp_path_factory.mktemp("limited"), authority) as site:
        limits = {"requests_per_s": 8.0, "samples_per_s": 20.0}
        yield Federation(site, ROSTER[:2], {}, serving=limits)


def test_who_asks_too_much_is_told_when_to_come_back(limited: Federation) -> None:
    before = _peer(limited, "shop", "bank")
    one = _named(limited, limited.ids[:1])
    started = time.monotonic()
    with _peer_channel(limited, "shop", "bank") as channel:
        num_answered, refused = _ask_until_refused(channel, one)
        took_s = time.monotonic() - started
        assert 1 <= num_answered <= 8 + 8 * took_s + 1
        assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "bank asks shop too much" in refused.details()
        wait_s = _retry_after_s(refused)
        assert 0 < wait_s <= 1

        after = _peer(limited, "shop", "bank")
        assert after["num_ids_served"] - before["num_ids_served"] == num_answered
        assert after["num_ids_asked"] - before["num_ids_asked"] == num_answered + 1
        assert after["num_refused"] > before["num_refused"]

        def answered() -> bool:
            return _ask_until_refused(channel, one)[0] > 0

        eventually(answered, "it is answered again after a while", wait_s + 5)


@pytest.mark.core
def test_nobody_but_members_is_answered(limited: Federation) -> None:
    for certificate, claimed in (("tester", "tester"), ("tester", "bank"), ("bank", "shop")):
        with _peer_channel(limited, "shop", certificate) as channel:
            request = pb.RepresentRequest(run=limited.runs()[0], sender=claimed)
            with pytest.raises(grpc.RpcError) as refused:
                list(PeerStub(channel).Represent(iter([request]), timeout=10))
            assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert {peer["client"] for peer in limited.status("shop")["peers"]} == {"bank"}


def test_ids_that_a_peer_does_not_hold_are_not_counted_as_served(limited: Federation) -> None:
    """There are names of nobody after those of everybody."""
    asked = _named(limited, limited.ids[:2])
    names = np.frombuffer(asked.names, NAME)
    nobody = np.array([(0, 10**6), (7, 0)], dtype=NAME)
    asked.names = np.concatenate([names, nobody]).tobytes()
    before = _peer(limited, "shop", "bank")
    with _peer_channel(limited, "shop", "bank") as channel:

        def answer() -> pb.RepresentResponse | None:
            try:
                return next(iter(PeerStub(channel).Represent(iter([asked]), timeout=10)))
            except grpc.RpcError:
                return None

        response = eventually(answer, "shop answers", 10)
    assert np.frombuffer(response.places, "<u4").tolist() == [0, 1]
    after = _peer(limited, "shop", "bank")
    assert after["num_ids_served"] - before["num_ids_served"] == 2
    assert after["num_ids_asked"] - before["num_ids_asked"] >= 4


def test_a_client_that_is_limited_waits_if_it_has_the_time(limited: Federation) -> None:
    with _peer_channel(limited, "shop", "bank") as channel:
        with limited.predictor("bank", HASTY_S) as predictor:
            _drain(channel, limited, num_ids=80)
            hasty, took_s = _timed(predictor, limited.ids[:2])
            assert took_s <= LENIENCE * HASTY_S
            assert hasty.errors == (None, None)
            _check_without(hasty, "shop")
            assert hasty.peers["shop"]
        with limited.predictor("bank", 20.0) as predictor:

            def patient() -> bool:
                _drain(channel, limited, num_ids=80)
                answer, took_s = _timed(predictor, limited.ids[:2])
                return answer.blocks.all() and took_s > HASTY_S

            eventually(patient, "bank waits for shop and gets its block", 20)
    assert _peer(limited, "shop", "bank")["num_refused"] > 0


def test_hasty_callers_of_a_limited_client_share_what_there_is(limited: Federation) -> None:
    """Questions that nobody waits for any more must not use up what others may ask."""
    give_up_at = time.monotonic() + 3.0
    num_whole = num_asked = 0
    with limited.predictor("bank", 0.1) as predictor:
        while time.monotonic() < give_up_at:
            answer = predictor.predict(limited.ids[:4])
            assert answer.errors == (None,) * 4
            num_whole += bool(answer.blocks.all())
            num_asked += 1
    assert num_asked > 15
    assert num_whole >= 3, "20 samples a second were allowed for 3 s"


def _serve_rows(directory: Path, name: str, ids: list[str], seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    columns = {f"x{j}": rng.standard_normal(len(ids)) for j in range(5)}
    written = directory / f"{name}_serve.tmp"
    pl.DataFrame({"id": ids, **columns}).write_csv(written)
    written.replace(directory / f"{name}_serve.csv")


def _other_problem(federation: Federation, old: str | None) -> str | None:
    problem = federation.status("bank")["serve_problem"]
    return problem if problem != old else None


def _timed(predictor: Predictor, ids: list[str]) -> tuple[Predictions, float]:
    started = time.perf_counter()
    return predictor.predict(ids), time.perf_counter() - started


def _three(ids: list[str], caller: int, number: int) -> tuple[str, ...]:
    """Three different samples, others for each caller and request."""
    start = 7 * caller + 3 * number
    return tuple(ids[(start + k) % len(ids)] for k in range(3))


def _is_stopped(process: Process) -> bool:
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def _check_without(answer: Predictions, lost: str) -> None:
    """All samples are predicted, with all blocks but one."""
    assert not any(answer.errors)
    has_block = dict(zip(answer.roster, answer.blocks.T, strict=True))
    assert not has_block.pop(lost).any()
    assert all(column.all() for column in has_block.values()), answer.peers


def _check_equal(answer: Predictions, expected: Predictions) -> None:
    assert answer.run == expected.run
    assert answer.block_names == expected.block_names, answer.peers
    np.testing.assert_allclose(answer.probabilities, expected.probabilities, atol=1e-6)


def _eventually_blocks(predictor: Predictor, one: str, blocks: str) -> None:
    eventually(lambda: predictor.predict([one]).block_names == [blocks], f"{one} has {blocks}", 10)


def _peer(federation: Federation, client: str, peer: str) -> dict[str, object]:
    """What a client says of one of its peers."""
    return next(p for p in federation.status(client)["peers"] if p["client"] == peer)


def _peer_channel(federation: Federation, to: str, certificate: str) -> grpc.Channel:
    assert federation.site.authority is not None
    return federation.site.authority.channel(federation.clients[to].wait_ready(), to, certificate)


def _named(federation: Federation, ids: list[str]) -> pb.RepresentRequest:
    """Bank's question to shop about some samples, by the names that they have at both."""
    run = federation.runs()[0]
    pseudonyms = PseudonymStore(StateDirectory(federation.site.path / "bank-state")).read(run)
    assert pseudonyms is not None
    secret = read_secret(federation.site.path / "id.secret")
    digests = blind_ids(ids, secret, federation.site.federation)
    names, at = pseudonyms.names_for(digests, federation.roster.index("shop"))
    assert len(at) == len(ids)
    return pb.RepresentRequest(run=run, sender="bank", alignment=pseudonyms.id, names=names)


def _ask_until_refused(
    channel: grpc.Channel, request: pb.RepresentRequest
) -> tuple[int, grpc.RpcError]:
    """Ask in one stream, one question after another; return how many were answered."""
    more = _Questions(request)
    responses = PeerStub(channel).Represent(more, timeout=30)
    num_answered = 0
    try:
        for response in responses:
            assert len(response.places) == 4
            num_answered += 1
            more.ask()
    except grpc.RpcError as error:
        return num_answered, error
    raise AssertionError("nobody refused")


class _Questions:
    """An iterator that has another question when it is told so."""

    def __init__(self, request: pb.RepresentRequest) -> None:
        self._request = request
        self._due: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.ask: Callable[[], None] = lambda: self._due.put(None)
        self.ask()

    def __iter__(self) -> "_Questions":
        return self

    def __next__(self) -> pb.RepresentRequest:
        self._due.get()
        return self._request


def _retry_after_s(error: grpc.RpcError) -> float:
    return int(dict(error.trailing_metadata())["laser-vfl-retry-after-ms"]) / 1e3


def _drain(channel: grpc.Channel, federation: Federation, num_ids: int) -> None:
    """Ask for so much at once that nothing more is answered for some seconds."""
    request = _named(federation, (federation.ids * 3)[:num_ids])

    def taken() -> bool:
        try:
            next(iter(PeerStub(channel).Represent(iter([request]), timeout=10)))
        except grpc.RpcError:
            return False
        return True

    eventually(taken, "shop answers a large question", 20)
