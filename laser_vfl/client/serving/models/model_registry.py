"""The models that a client serves: the current one, the one before, and the switch to a new one."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from laser_vfl.atomic_files import Stamp
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import num_threads
from laser_vfl.client.serving.forward_batcher import ForwardBatcher
from laser_vfl.client.serving.models.model_store import ModelStore
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.serving.models.served_tables import ServedTables
from laser_vfl.client.serving.unaligned_ids import UnalignedIds
from laser_vfl.client.session.coordinator_session import ServingStatus
from laser_vfl.client.tables.block import Block
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.pseudonym_table import PseudonymTable
from laser_vfl.client.tables.table_listing import Listing, People
from laser_vfl.core.errors import DataError, LaserError, NotReady

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""How often the serving table and the list of people to forget are looked at."""

UNUSED_S = 60.0
"""A model that is not the current one is let go when nobody has asked for it for so long."""


class ModelRegistry:
    """Loads models with their rows. It lives on the event loop; a thread of its own computes."""

    def __init__(
        self,
        config: ClientConfig,
        models: ModelStore,
        tables: ServedTables,
        unaligned: UnalignedIds,
        forgotten: ErasureList,
        switched: Callable[[ServedModel, ServedModel | None], None],
        next_model: NextModel,
    ) -> None:
        self.current: ServedModel | None = None
        self.has_model = asyncio.Event()
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="serving")
        """Where models compute."""
        self._config = config
        self._store = models
        self._tables = tables
        self._unaligned = unaligned
        self._forgotten = forgotten
        self._erasures_applied: Stamp | None = None
        """The stamp of the list of people to forget that is in force."""
        self._complaint = ""
        self._next = next_model
        """The one that is trained and not served yet, if any."""
        self._switched = switched
        """Hears of the new current model and the one before, just before it is used."""
        self._models: dict[str, ServedModel] = {}
        self._loading = asyncio.Lock()
        self._switching = asyncio.Lock()

    @property
    def served_run(self) -> str:
        """The run of the current model; empty before the first."""
        return self.current.model.run if self.current else ""

    @property
    def served_people(self) -> People:
        """Those of the serving table who are not forgotten."""
        return self._tables.people

    @property
    def is_trained(self) -> bool:
        """Whether there is a model here, served or not yet."""
        return self.current is not None or bool(self._next.run)

    def unaligned_ids(self) -> Listing:
        """List the ids that the current model could serve but that have no pseudonym yet."""
        return self._unaligned.listed(self.current)

    def status(self) -> ServingStatus:
        """Return what the coordinator is told of what is served."""
        pseudonyms = self.current.pseudonyms if self.current else None
        status = ServingStatus(self.served_run, next_run=self._next.run, holds=self._next.holds)
        if pseudonyms is None:
            return status
        num_unaligned = self._unaligned.num_to_align
        return replace(status, naming=pseudonyms.id, num_unaligned=num_unaligned)

    def ready(self) -> ServedModel:
        """Return what predictions are made with."""
        if self.current is None:
            if self._next.run:
                raise NotReady(
                    f"{self._config.name} serves no model yet; run {self._next.run} is held back",
                    hint="ask again when all organisations have published it",
                )
            raise NotReady(
                f"{self._config.name} has no model yet", hint="ask again when training has finished"
            )
        return self.current

    async def start(self) -> None:
        """Read the serving table, and serve what an earlier process has published, if anything."""
        await self._apply_erasures()
        run = self._store.published_run
        if run is None:
            await asyncio.to_thread(self._tables.read)
            return
        await asyncio.to_thread(self._tables.refresh)  # a broken table must not stop the daemon now
        await self._switch(run)
        log.info("serving the model of run %s", run)

    async def get(self, run: str) -> ServedModel | None:
        """Return the model of a run with its rows, if there is one here."""
        if run not in self._models and await asyncio.to_thread(self._store.has, run):
            async with self._loading:
                if run not in self._models:
                    self._models[run] = await asyncio.to_thread(self._load, run)
        served = self._models.get(run)
        if served is not None:
            served.used()
        return served

    async def get_for_peers(self, run: str) -> ServedModel | None:
        """Return the model of a run to answer peers with: not one that this client holds back."""
        is_held = self._next.holds and run == self._next.run
        return None if is_held else await self.get(run)

    async def publish(self, run: str, *, asks_peers: bool = True) -> None:
        """Serve the model of a run from now on. Requests under way end with the one before.

        A client that is about to end asks no peers: those that have ended would be out of reach.
        """
        async with self._switching:
            await asyncio.to_thread(self._store.publish, run)
            self._next.served()
            await self._switch(run, asks_peers=asks_peers)
        log.info("serving the model of run %s from now on", run)

    async def trained(self, run: str, block: Block) -> None:
        """Answer peers with the model of a run that is written, though others still train.

        Rows are taken from this block where its encoding fits.
        """
        self._tables.set_block(block)
        await self.get(run)
        await self._next.trained(run)

    async def give_up(self, run: str) -> None:
        """Never serve the model of a run that came to nothing."""
        await self._next.forget(run)

    async def adopt(self, run: str, *, asks_peers: bool) -> None:
        """Serve the model of a run that has ended, or keep it until all have published it."""
        async with self._switching:
            is_held = await self._next.is_held(run)
        if not is_held:
            await self.publish(run, asks_peers=asks_peers)

    async def follow_publications(self) -> None:
        """Serve a model that was held back as soon as nobody holds it back, for ever."""
        while True:
            await self._next.news()
            if not self._next.is_due:
                continue
            try:
                await self.publish(self._next.run)
            except LaserError as error:
                log.error("run %s cannot be served: %s", self._next.run, error)

    async def rename(self, pseudonyms: PseudonymTable) -> None:
        """Name people to peers by a newer alignment from now on."""
        async with self._loading:
            served = self._models.get(pseudonyms.run)
            pseudonyms = pseudonyms.without(self._forgotten.have(pseudonyms.digests))
            await asyncio.to_thread(self._store.write_pseudonyms, pseudonyms)
            if served is not None:
                served.rename(pseudonyms)
        if served is not None:
            await asyncio.to_thread(self._unaligned.drop_aligned, pseudonyms)
            await asyncio.to_thread(self._unaligned.count, self.current)

    async def keep_up(self) -> None:
        """Follow the tables and drop models that are not used any more, for ever."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            try:
                await self._follow_forgotten()
                await self._follow_tables()
                self._drop_unused()
            except Exception:
                log.exception("this is a bug; serving goes on with the rows as they were")

    def close(self) -> None:
        """Compute no more."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    async def _apply_erasures(self) -> None:
        """Drop who is forgotten from all that is served, and from the pseudonyms on disk."""
        async with self._loading:
            await asyncio.to_thread(self._forgotten.refresh)
            if self._forgotten.stamp != self._erasures_applied:
                stamp = self._forgotten.stamp
                await asyncio.to_thread(self._drop_forgotten)
                log.info("%d people are forgotten", len(self._forgotten))
                self._erasures_applied = stamp

    def _drop_forgotten(self) -> None:
        for served in self._models.values():
            served.forget(self._forgotten)
        self._unaligned.drop_forgotten(self._forgotten.are)
        self._unaligned.count(self.current)
        self._store.forget_people(self._forgotten.have)

    async def _follow_forgotten(self) -> None:
        try:
            await self._apply_erasures()
            self._complaint = ""
        except LaserError as error:
            if str(error) != self._complaint:
                log.error("%s", error)
            self._complaint = str(error)

    async def _follow_tables(self) -> None:
        if not await asyncio.to_thread(self._tables.refresh):
            return
        for served in list(self._models.values()):
            row_index = await asyncio.to_thread(
                self._tables.row_index, served.model.encoding, served.row_index
            )
            served.replace_rows(row_index)
        await asyncio.to_thread(self._unaligned.count, self.current)

    def _drop_unused(self) -> None:
        now = time.monotonic()
        for run, served in list(self._models.items()):
            if served is not self.current and now - served.used_at > UNUSED_S:
                del self._models[run]

    async def _switch(self, run: str, *, asks_peers: bool = True) -> None:
        served = await self.get(run)
        if served is None:
            raise DataError(f"there is no model of run {run}", where=self._store.path)
        config = self._config
        addresses = served.model.addresses
        threads = num_threads(config.threads, config.own_address, addresses, config.name)
        torch.set_num_threads(threads)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.executor, torch.set_num_threads, threads)
        if asks_peers:
            self._switched(served, self.current)
        self.current = served
        await asyncio.to_thread(self._unaligned.count, served)
        self.has_model.set()

    def _load(self, run: str) -> ServedModel:
        model = self._store.load(run)
        pseudonyms = self._store.load_pseudonyms(model, self._forgotten.have)
        together = self._config.serving.batch_requests
        example = torch.zeros(model.encoding.row_shape)
        width = model.method.prediction.fused_width(model.context)
        return ServedModel(
            model,
            self._tables.row_index(model.encoding),
            ForwardBatcher(model.represent, example, self.executor, together=together),
            ForwardBatcher(model.outputs, torch.zeros(width), self.executor, together=together)
            if model.labels
            else None,
            pseudonyms=pseudonyms,
        )
