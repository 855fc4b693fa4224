"""What a client serves: the current model with its rows, and those before and after it."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from laser_vfl.client.artifacts import StateDirectory, unusable
from laser_vfl.client.asking import Asker
from laser_vfl.client.batching import Batcher
from laser_vfl.client.block import Block, OwnModels, table_spec
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import num_threads
from laser_vfl.client.digest_index import Digests
from laser_vfl.client.edition import Edition
from laser_vfl.client.files import Stamp
from laser_vfl.client.forgotten import Forgotten
from laser_vfl.client.holdings import Holdings, Rowset
from laser_vfl.client.ledger import Ledger
from laser_vfl.client.limits import Accounts
from laser_vfl.client.listing import Keys, Listing, People, listing
from laser_vfl.client.meters import Meters
from laser_vfl.client.naming import Naming
from laser_vfl.client.published import PublishedModel, load_published
from laser_vfl.client.rounds import Rounds
from laser_vfl.client.serve_table import ServeTable
from laser_vfl.client.session import Standing
from laser_vfl.client.told_address import told_address
from laser_vfl.core.errors import ContractError, DataError, LaserError, NotReady
from laser_vfl.data import Encoding, Table, blind_ids, read_table
from laser_vfl.wire.credentials import Credentials
from laser_vfl.wire.sizes import asking_options

log = logging.getLogger(__name__)

HOUSE_INTERVAL_S = 1.0

MAX_VISITORS = 100_000
"""How many people who are in no table are remembered until they are aligned."""

MAX_KNOWN = 64
"""How many other clients a federation may have."""

UNUSED_S = 60.0
"""A model that is not the current one is let go when nobody has asked for it for so long."""


class Serving:
    """All that predictions need. It lives on the event loop; a thread of its own computes."""

    def __init__(
        self,
        config: ClientConfig,
        state: StateDirectory,
        block: Block,
        own: OwnModels,
        credentials: Credentials,
        device: torch.device,
        keys: Keys,
        ledger: Ledger,
        forgotten: Forgotten,
        meters: Meters | None = None,
    ) -> None:
        self.config = config
        self.meters = meters or Meters()
        self.forgotten = forgotten
        self.current: Edition | None = None
        self.has_model = asyncio.Event()
        self.askers: dict[str, Asker] = {}
        self.rounds = Rounds(self.askers, together=config.serving.batch_requests)
        self.accounts = Accounts(config.serving.requests_per_s, config.serving.samples_per_s)
        self.num_requests = self.num_predicted = self.num_sample_errors = 0
        self.num_by_subset: Counter[int] = Counter()
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="serving")
        self._state = state
        self._block = block
        self._own = own
        self._credentials = credentials
        self._device = device
        self._keys = keys
        self._ledger = ledger
        self._obeyed: Stamp | None = None
        """Which list of people to forget has been obeyed."""
        self._complaint = ""
        self._visitors: dict[bytes, str] = {}
        self._visiting = threading.Lock()
        self.num_newcomers = 0
        """How many people have no name yet; who is in a table and in a request counts twice."""
        self._editions: dict[str, Edition] = {}
        self._loading = asyncio.Lock()
        self._addresses = state.read_addresses()
        self._serve = ServeTable(config.data.serve, table_spec(config), self.blind)

    @property
    def served_run(self) -> str:
        """The run of the current model; empty before the first."""
        return self.current.model.run if self.current else ""

    @property
    def known_clients(self) -> frozenset[str]:
        """The clients of the model's roster, or, before the first, those met so far."""
        return frozenset(self.current.model.roster if self.current else self._addresses)

    @property
    def serve_problem(self) -> str:
        """What is wrong with the serving table, if anything."""
        return self._serve.problem

    def blind(self, ids: Sequence[str]) -> Digests:
        """Return the digests of normalised ids under this client's key."""
        return blind_ids(ids, self._keys.digest, self.config.federation)

    @property
    def served_people(self) -> People:
        """Those of the serving table who are not forgotten."""
        people = self._serve.people
        return people.part(~self.forgotten.are(people.ids))

    def standing(self) -> Standing:
        """Return what the coordinator is told of all this."""
        naming = self.current.naming if self.current else None
        if naming is None:
            return Standing(self.served_run)
        num = self.num_newcomers if self._ledger.has_time_for_newcomers else 0
        return Standing(self.served_run, naming.id, num)

    def newcomers(self) -> Listing:
        """List those whom the current model could serve but cannot name to peers."""
        edition = self.current
        if edition is None or edition.naming is None:
            return listing()
        with self._visiting:
            ids = list(self._visitors.values())
        visitors = People(ids, self.blind(ids))
        parts = (*edition.holdings.people, visitors)
        new = [part.part(edition.naming.is_new(part.digests)) for part in parts]
        return listing(*new, order=self._keys.order)

    def visit(self, edition: Edition, ids: Sequence[str], digests: Digests) -> None:
        """Take note of people whose features came with a request; they are aligned like the rest.

        They are asked for at peers once they have a name.
        """
        if edition.naming is None or not self.config.serving.align_requests:
            return
        new = np.flatnonzero(edition.naming.is_new(digests)).tolist()
        with self._visiting:
            if len(self._visitors) + len(new) > MAX_VISITORS:
                return
            num_before = len(self._visitors)
            self._visitors |= {digests[place].tobytes(): ids[place] for place in new}
            self.num_newcomers += len(self._visitors) - num_before

    async def rename(self, naming: Naming) -> None:
        """Name people by a newer alignment from now on."""
        async with self._loading:
            edition = self._editions.get(naming.run)
            naming = naming.without(self.forgotten.have(naming.digests))
            await asyncio.to_thread(self._state.write_naming, naming)
            if edition is not None:
                edition.rename(naming)
        if edition is not None:
            await asyncio.to_thread(self._drop_named, naming)
            await asyncio.to_thread(self._count_newcomers)

    def _drop_named(self, naming: Naming) -> None:
        named = {digest.tobytes() for digest in naming.digests}
        with self._visiting:
            self._visitors = {d: id for d, id in self._visitors.items() if d not in named}

    def _count_newcomers(self) -> None:
        self.num_newcomers = len(self.newcomers())

    def ready(self) -> Edition:
        """Return what predictions are made with."""
        if self.current is None:
            raise NotReady(
                f"{self.config.name} has no model yet", hint="ask again when training has finished"
            )
        return self.current

    async def start(self) -> None:
        """Read the serving table and serve what was published in an earlier life, if anything."""
        await self._obey()
        run = self._state.published_run
        if run is None:
            await asyncio.to_thread(self._serve.read)
            return
        await asyncio.to_thread(self._serve.refresh)  # what is wrong with it must not stop us now
        await self._switch(run)
        log.info("serving the model of run %s", run)

    async def edition(self, run: str) -> Edition | None:
        """Return the model of a run with its rows, if there is one here."""
        if run not in self._editions and self._state.has_model(run):
            async with self._loading:
                if run not in self._editions:
                    self._editions[run] = await asyncio.to_thread(self._load, run)
        edition = self._editions.get(run)
        if edition is not None:
            edition.used_at = time.monotonic()
        return edition

    async def publish(self, run: str) -> None:
        """Serve the model of a run from now on. Requests under way end with the one before."""
        self._state.publish(run)
        await self._switch(run)
        log.info("serving the model of run %s from now on", run)

    def set_block(self, block: Block) -> None:
        """Take rows from this block where its encoding fits."""
        self._block = block

    def meet(self, addresses: Mapping[str, str]) -> None:
        """Learn where the other clients can be reached now."""
        news = {k: v for k, v in addresses.items() if k != self.config.name and _is_host(k, v)}
        if len(self._addresses.keys() | news.keys()) > MAX_KNOWN:
            log.warning("the coordinator names more clients than a federation can have")
            return
        if news.items() <= self._addresses.items():
            return
        self._addresses |= news
        for name, asker in self.askers.items():
            asker.move(self._addresses.get(name, asker.address))
        try:
            self._state.write_addresses(self._addresses)
        except LaserError as error:
            log.warning("%s", error)

    async def keep_house(self) -> None:
        """Follow the serving table and let go of what is not used any more, for ever."""
        while True:
            await asyncio.sleep(HOUSE_INTERVAL_S)
            try:
                await self._tidy()
            except Exception:
                log.exception("this is a bug; serving goes on with the rows as they were")

    async def close(self) -> None:
        """Answer no more."""
        await self.rounds.close()
        for asker in self.askers.values():
            await asker.close()
        self.executor.shutdown(wait=False, cancel_futures=True)

    async def _obey(self) -> None:
        """Drop who is forgotten from all that is served, and from the names on disk."""
        async with self._loading:
            await asyncio.to_thread(self.forgotten.refresh)
            if self.forgotten.stamp != self._obeyed:
                stamp = self.forgotten.stamp
                await asyncio.to_thread(self._drop_forgotten)
                log.info("%d people are forgotten", len(self.forgotten))
                self._obeyed = stamp

    def _drop_forgotten(self) -> None:
        for edition in self._editions.values():
            edition.holdings = edition.holdings.without(self.forgotten.are)
            edition.forget(self.forgotten.have)
        with self._visiting:
            gone = self.forgotten.are(list(self._visitors.values()))
            kept = zip(self._visitors.items(), gone, strict=True)
            self._visitors = {d: id for (d, id), is_gone in kept if not is_gone}
        self._count_newcomers()
        self._state.purge_namings(self.forgotten.have)

    async def _follow_forgotten(self) -> None:
        try:
            await self._obey()
            self._complaint = ""
        except LaserError as error:
            if str(error) != self._complaint:
                log.error("%s", error)
            self._complaint = str(error)

    async def _tidy(self) -> None:
        await self._follow_forgotten()
        if await asyncio.to_thread(self._serve.refresh):
            for edition in list(self._editions.values()):
                await asyncio.to_thread(self._renew, edition)
            await asyncio.to_thread(self._count_newcomers)
        now = time.monotonic()
        for run, edition in list(self._editions.items()):
            if edition is not self.current and now - edition.used_at > UNUSED_S:
                del self._editions[run]

    async def _switch(self, run: str) -> None:
        edition = await self.edition(run)
        if edition is None:
            raise DataError(f"there is no model of run {run}", where=str(self._state.path))
        model = edition.model
        threads = num_threads(self.config.threads, model.addresses, self.config.name)
        torch.set_num_threads(threads)
        await asyncio.get_running_loop().run_in_executor(
            self.executor, torch.set_num_threads, threads
        )
        options = asking_options(model.settings, len(model.roster))
        for asker in self.askers.values():
            asker.expect(options)
        for name, address in model.addresses.items():
            if name != self.config.name and name not in self.askers:
                asker = Asker(
                    name,
                    self._addresses.get(name, address),
                    sender=self.config.name,
                    credentials=self._credentials,
                    options=options,
                    traffic=self.meters.traffic,
                )
                self.askers[name] = asker
                asker.probe(at_once=True)
        if self.current is not None and self.current.model.roster != model.roster:
            self.num_by_subset.clear()
        self.current = edition
        await asyncio.to_thread(self._count_newcomers)
        self.has_model.set()

    def _load(self, run: str) -> Edition:
        model = load_published(self.config, self._state, run, self._own, self._device)
        naming = self._state.purge_naming(run, self.forgotten.have)
        if naming is None and model.alignment == "ecdh":
            raise unusable(self._state.path / "models" / run, "naming.safetensors is missing")
        together = self.config.serving.batch_requests
        example = torch.zeros(model.encoding.input_shape)
        width = model.method.fused_width(model.place)
        return Edition(
            model,
            self._holdings(model, self._served_rows(model.encoding)),
            Batcher(model.represent, example, self.executor, together=together),
            Batcher(model.outputs, torch.zeros(width), self.executor, together=together)
            if model.labels
            else None,
            naming=naming,
        )

    def _renew(self, edition: Edition) -> None:
        try:
            edition.holdings = self._holdings(
                edition.model, self._serve.rowsets(edition.model.encoding)
            )
        except DataError as error:
            self._serve.complain(error)

    def _served_rows(self, encoding: Encoding) -> list[Rowset]:
        try:
            return self._serve.rowsets(encoding)
        except DataError as error:
            self._serve.complain(error)
            return []

    def _holdings(self, model: PublishedModel, rowsets: list[Rowset]) -> Holdings:
        """Gather the rows of all tables, in the encoding of this model."""
        block = self._block
        if block.encoding.to_json() == model.encoding.to_json():
            tables = [table for table in (block.test, block.train) if table is not None]
            rowsets = [*rowsets, *(Rowset(t.digests, t.inputs, t.ids) for t in tables)]
        else:
            rowsets = [*rowsets, *self._reread(model.encoding)]
        return Holdings(rowsets).without(self.forgotten.are)

    def _reread(self, encoding: Encoding) -> list[Rowset]:
        """Encode the tables as they were encoded in training, although they have changed since."""
        rowsets = []
        for path in (self.config.data.test, self.config.data.train):
            if path is None:
                continue
            try:
                table: Table = read_table(path, replace(table_spec(self.config), label=None))
                inputs = torch.from_numpy(encoding.apply(table))
            except DataError as error:
                log.warning("the model cannot use a table any more: %s", error)
                continue
            rowsets.append(Rowset(self.blind(table.ids), inputs, table.ids))
        return rowsets


def _is_host(client: str, address: str) -> bool:
    try:
        told_address(address, client)
    except ContractError as error:
        log.warning("%s; it stays where it was", error)
        return False
    return True
