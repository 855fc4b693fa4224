"""A federation that has trained and serves, for tests of what comes then."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from laser_vfl import Predictor
from tests.support.daemons.harness import START_S, Process, Site, eventually, free_address
from tests.support.data.people import People


class Federation:
    """Clients that have trained together and serve; every sample is at all of them."""

    def __init__(
        self,
        site: Site,
        roster: Sequence[str],
        training: Mapping[str, Any],
        *,
        start: Mapping[str, Any] | None = None,
        alignment: str | None = None,
        token: str | None = None,
        **more: Any,
    ) -> None:
        """With tokens in place of certificates, `token` is one that its clients take."""
        people = People(90)
        for name in roster:
            people.write(site.path, name, p_hold=1.0, test_share=0.3)
        self.site = site
        self.roster = list(roster)
        self.ids = [f"person-{i:05d}" for i in range(63, 90)]
        """The samples of the test table."""
        self._token = token
        self._more = more
        self.coordinator_config = site.coordinator_config(roster, training, start=start)
        if alignment:
            self.coordinator_config["alignment"] = alignment
        self.coordinator_config["listen"] = free_address()
        self.clients: dict[str, Process] = {}
        self.start_coordinator()
        for name in roster:
            self.start(name)
        for name in roster:
            self.clients[name].wait_for_served()

    def start_coordinator(self) -> None:
        """Start it, always at the same address."""
        self.coordinator = self.site.start_coordinator(self.coordinator_config)

    def start(self, name: str, **changes: Any) -> Process:
        """Start a client, at another port each time; `changes` are further keys of its file."""
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        if (self.site.path / f"{name}_serve.csv").exists():
            data["serve"] = f"{name}_serve.csv"
        config = self.site.client_config(
            name, data={**data, "label": "kind"}, **self._more, **changes
        )
        self.clients[name] = client = self.site.start_client(config)
        if self._token is not None:
            by_name = f"{name}.client.{self.site.federation}"
            client.tls = {"ca": client.tls["ca"], "token": self._token, "name": by_name}
        return client

    def predictor(self, name: str, deadline: float | None = 20.0) -> Predictor:
        return self.clients[name].predictor(deadline)

    def status(self, name: str) -> dict[str, Any]:
        """What a client says of itself."""
        with self.predictor(name) as predictor:
            return predictor.status()

    def runs(self) -> list[str]:
        """The run of the model that each client serves."""
        return [self.status(name)["model"]["run"] for name in self.roster]

    def manifest(self, name: str) -> dict[str, Any]:
        path = self.site.path / f"{name}-state" / "model" / "manifest.json"
        return dict(json.loads(path.read_text()))

    def wait_whole(self, within_s: float = START_S) -> None:
        """Wait until every client that is up predicts with all blocks."""
        for name in self.roster:
            with self.predictor(name) as predictor:
                eventually(
                    lambda predictor=predictor: predictor.predict(self.ids).blocks.all(),  # type: ignore[misc]
                    f"{name} predicts with all blocks",
                    within_s,
                )
