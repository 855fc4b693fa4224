"""What each party receives, in bytes, has nothing that it could recognise an id by."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations

import pytest
from align_tapped import Tapped

from laser_vfl.client.alignment.curve import TABLE
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.data import POINT_BYTES, blind_ids, hash_to_curve, multiply, read_secret
from tests.support.daemons.dry_runs import no_tracebacks
from tests.support.daemons.harness import Site, eventually
from tests.support.data.people import People

pytestmark = pytest.mark.core

ROSTER = ["bank", "shop", "telco"]
IDS = [f"person-{i:05d}" for i in range(60)]
HASHES = ("md5", "sha1", "sha256", "sha512", "sha3_256", "sha3_512", "blake2b", "blake2s")


@dataclass(frozen=True)
class Transcript:
    """What was received in a federation that has aligned, trained and predicted."""

    site: Site
    run: str
    received: Mapping[str, bytes]

    def keys_of(self, client: str) -> list[bytes]:
        """The keys that a client has."""
        state = StateDirectory(self.site.path / f"{client}-state")
        return [state.own_key(), read_secret(self.site.path / "id.secret")]

    def scalar_of(self, client: str) -> bytes:
        pseudonyms = PseudonymStore(StateDirectory(self.site.path / f"{client}-state")).read(
            self.run
        )
        assert pseudonyms is not None
        return pseudonyms.scalar


@pytest.fixture(scope="module", params=["ecdh", "hmac"])
def transcript(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transcript]:
    with (
        Site(tmp_path_factory.mktemp("transcript"), None) as site,
        Tapped(site, ROSTER) as tapped,
    ):
        people = People(len(IDS))
        for name in ROSTER:
            people.write(site.path, name, p_hold=0.8, test_share=0.3)
        tapped.start_coordinator({"epochs": 1}, alignment=request.param)
        for name in ROSTER:
            data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
            tapped.start(name, data={**data, "label": "kind"})
        tapped.wait_served()
        _predict(tapped)
        no_tracebacks(site)
        run = StateDirectory(site.path / "bank-state").published_run
        assert run is not None
        yield Transcript(site, run, {name: _received(tapped, name) for name in tapped.taps})


def _predict(tapped: Tapped) -> None:
    """So that peers are asked for people, too."""
    with tapped.clients["bank"].predictor() as predictor:
        eventually(
            lambda: predictor.predict(IDS).block_names.count("bank,shop,telco") > 5,
            "bank predicts with all blocks",
        )


def _received(tapped: Tapped, name: str) -> bytes:
    """All messages to a daemon, and all answers that it may have got from others."""
    others = [tap.messages_from() for other, tap in tapped.taps.items() if other != name]
    calls = chain(tapped.taps[name].messages_to(), *others)
    return b"\n".join(b"".join(messages) for messages in calls)


def _found(needles: Iterable[bytes], haystack: bytes) -> int:
    return sum(needle in haystack for needle in needles)


def _split(points: bytes) -> list[bytes]:
    return [points[i : i + POINT_BYTES] for i in range(0, len(points), POINT_BYTES)]


def _points(transcript: Transcript, scalars: Iterable[bytes] = ()) -> list[bytes]:
    """Everybody as points, under some scalars."""
    federation, run = transcript.site.federation, transcript.run
    points = hash_to_curve(IDS, federation=federation, run=run, table=TABLE)
    for scalar in scalars:
        points = multiply(points, scalar)
    return _split(points)


def _hashes(key: bytes | None) -> Iterator[bytes]:
    for id in IDS:
        for name in HASHES:
            text = id.encode()
            yield hmac.digest(key, text, name) if key else hashlib.new(name, text).digest()
            yield (hmac.digest(key, text, name) if key else hashlib.new(name, text).digest())[:16]


@pytest.mark.parametrize("transcript", ["ecdh"], indirect=True)
class TestEcdh:
    """The default."""

    @pytest.mark.parametrize("party", ["coordinator", *ROSTER])
    def test_nobody_receives_an_id_or_its_hash(self, party: str, transcript: Transcript) -> None:
        received = transcript.received[party]
        assert len(received) > 10_000
        assert not _found((id.encode() for id in IDS), received)
        assert not _found(_hashes(None), received)
        assert not _found(_points(transcript), received)

    @pytest.mark.parametrize("party", ROSTER)
    def test_nobody_receives_what_its_own_keys_make_of_an_id(
        self, party: str, transcript: Transcript
    ) -> None:
        received = transcript.received[party]
        for key in transcript.keys_of(party):
            assert not _found(_hashes(key), received)
            digests = blind_ids(IDS, key, transcript.site.federation).tobytes()
            assert not _found(_split(digests), received)
        assert not _found(_points(transcript, [transcript.scalar_of(party)]), received)

    def test_the_coordinator_receives_nothing_that_some_of_the_clients_could_make(
        self, transcript: Transcript
    ) -> None:
        """It takes all scalars; with these, everything is found, which shows where to look."""
        received = transcript.received["coordinator"]
        scalars = [transcript.scalar_of(name) for name in ROSTER]
        for size in range(len(ROSTER)):
            for some in combinations(scalars, size):
                assert not _found(_points(transcript, some), received)
        for name in ROSTER:
            for key in transcript.keys_of(name):
                digests = blind_ids(IDS, key, transcript.site.federation).tobytes()
                assert not _found(_split(digests), received)
        assert _found(_points(transcript, scalars), received) > len(IDS) / 2

    def test_a_client_receives_lists_under_scalars_of_others_alone(
        self, transcript: Transcript
    ) -> None:
        """This, too, shows that what is not found above would be found."""
        for place, name in enumerate(ROSTER):
            others = [transcript.scalar_of(ROSTER[place - back]) for back in (1, 2)]
            received = transcript.received[name]
            assert _found(_points(transcript, others[:1]), received) > len(IDS) / 2
            assert _found(_points(transcript, others), received) > len(IDS) / 2


@pytest.mark.parametrize("transcript", ["hmac"], indirect=True)
def test_with_hmac_every_client_could_recognise_everybody(transcript: Transcript) -> None:
    """What this alignment does not protect from is found by the same search."""
    received = transcript.received["coordinator"]
    assert not _found((id.encode() for id in IDS), received)
    assert not _found(_hashes(None), received)
    _, secret = transcript.keys_of("bank")
    digests = blind_ids(IDS, secret, transcript.site.federation).tobytes()
    assert _found(_split(digests), received) > len(IDS) / 2
    assert _found(_split(digests), transcript.received["shop"]) > 5, "bank asks shop by digests"
