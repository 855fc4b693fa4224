"""Both ways of comparing ids find the same groups, and models are trained on the same people."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.daemons.dry_runs import counts, dry_run, no_tracebacks, status, wait_for_activity
from tests.support.daemons.harness import Authority, Process, Site
from tests.support.data.people import People
from tests.support.oracle.single_process import SingleProcess, single_process

ROSTER = ["bank", "shop", "telco"]
IDS = [f"person-{i:05d}" for i in range(80)]


class Trained:
    """A federation that has trained by one of the schemes."""

    def __init__(self, site: Site, scheme: str) -> None:
        people = People(len(IDS), seed=3)
        for name in ROSTER:
            people.write(site.path, name, p_hold=0.6, test_share=0.25)
        config = site.coordinator_config(ROSTER, {"epochs": 1}, alignment=scheme)
        site.start_coordinator(config)
        self.site = site
        self.clients: dict[str, Process] = {}
        for name in ROSTER:
            data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
            config = site.client_config(name, data={**data, "label": "kind"})
            self.clients[name] = site.start_client(config)
        for client in self.clients.values():
            client.wait_for_served()
        wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))

    def patterns(self, name: str) -> list[str]:
        """Whose blocks a client finds for each person; empty if it does not hold them."""
        with self.clients[name].predictor() as predictor:
            found = predictor.predict(IDS)
        return list(found.block_names)


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[dict[str, Trained]]:
    directory = tmp_path_factory.mktemp("schemes")
    with (
        Site(directory / "ecdh", authority) as by_points,
        Site(directory / "hmac", authority) as by_digests,
    ):
        sites = {"ecdh": by_points, "hmac": by_digests}
        yield {scheme: Trained(site, scheme) for scheme, site in sites.items()}


def test_the_groups_of_a_run_are_the_same(both: dict[str, Trained]) -> None:
    """The single process, which real runs of both schemes equal, has trained on the same groups."""
    ecdh, hmac = (_groups(single_process(both[scheme].site.path)) for scheme in ("ecdh", "hmac"))
    assert len(ecdh) == 7
    assert ecdh == hmac


def test_the_groups_of_a_dry_run_are_the_same(both: dict[str, Trained]) -> None:
    ecdh, hmac = (dry_run(both[scheme].clients["shop"]) for scheme in ("ecdh", "hmac"))
    assert (ecdh["scheme"], hmac["scheme"]) == ("ecdh", "hmac")
    for table in ("train", "test", "serve"):
        assert counts(ecdh, table) == counts(hmac, table)
        assert ecdh["tables"][table] == hmac["tables"][table]


@pytest.mark.parametrize("name", ROSTER)
def test_everybody_is_predicted_with_the_same_blocks(name: str, both: dict[str, Trained]) -> None:
    expected = _expected(both["ecdh"].site, name)
    assert both["ecdh"].patterns(name) == both["hmac"].patterns(name) == expected


def test_the_coordinator_counts_the_same(both: dict[str, Trained]) -> None:
    ecdh, hmac = (_sizes(status(both[scheme].site)) for scheme in ("ecdh", "hmac"))
    assert ecdh == hmac
    for trained in both.values():
        no_tracebacks(trained.site)


def _groups(alone: SingleProcess) -> dict[int, set[str]]:
    """Who is in which group of the training table, by anybody who holds them."""
    found: dict[int, set[str]] = {}
    for block, alignment in zip(alone.blocks, alone.alignments, strict=True):
        for g, rows in alignment.rows.items():
            people = {block.train.ids[row] for row in rows.tolist()}
            observed = alignment.groups[g].observed
            assert found.setdefault(observed, people) == people
    return found


def _expected(site: Site, name: str) -> list[str]:
    """Whose blocks there are for each person whom a client holds, by the plain text."""
    held = {}
    for client in ROSTER:
        tables = [site.path / f"{client}_{table}.csv" for table in ("train", "test")]
        held[client] = {line.split(",")[0] for t in tables for line in t.read_text().splitlines()}
    return [
        ",".join(c for c in ROSTER if person in held[c]) if person in held[name] else ""
        for person in IDS
    ]


def _sizes(told: dict[str, Any]) -> list[int]:
    return [told["num_samples"], *(client["num_samples"] for client in told["clients"])]
