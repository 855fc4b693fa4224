"""What this client's tables hold: read again when they have changed or somebody is forgotten."""

import asyncio

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import Block, file_stamps, load_block
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.table_listing import (
    NOBODY,
    Keys,
    Listing,
    People,
    listing,
    read_keys,
)
from laser_vfl.client.work_progress import WorkProgress
from laser_vfl.core.alignment_purpose import Scheme
from laser_vfl.data import VERSION


class OwnTables:
    """The block that this client takes part with."""

    def __init__(
        self,
        config: ClientConfig,
        keys: Keys,
        forgotten: ErasureList,
        block: Block,
        progress: WorkProgress | None = None,
    ) -> None:
        self._progress = progress or WorkProgress()
        self.block = block
        self.keys = keys
        self.forgotten = forgotten
        """The people who are left out of the block."""
        self._is_fresh = True
        """Whether the block is what the tables hold; not after a time of waiting."""
        self._config = config
        self._version = VERSION

    @property
    def has_labels(self) -> bool:
        """Whether this client has labels, and so may have a head."""
        return self.block.labels is not None

    async def refresh(self) -> None:
        """Read the tables again, unless they have just been read."""
        if not self._is_fresh:
            self._version = VERSION
        if not self._is_fresh or await self._is_outdated():
            await self._read()
            self._is_fresh = True

    async def encode_as(self, version: int) -> None:
        """Encode the tables by the rules of another version, until they are read again."""
        if version != self._version:
            self._version = version
            await self._read()

    def mark_stale(self) -> None:
        """Read the tables again before the next run: time passes, and they may change."""
        self._is_fresh = False

    async def leave_out_forgotten(self) -> None:
        """Read the tables again if somebody was forgotten since."""
        if await self._is_outdated():
            await self._read()

    async def as_they_are(self) -> Block:
        """Return what the tables hold now; the block stays as it is."""
        if self.block.stamps == file_stamps(self._config) and not await self._is_outdated():
            return self.block
        return await asyncio.to_thread(self._load)

    def lists(self, block: Block, served: People, scheme: Scheme) -> dict[str, Listing]:
        """List the people of each table of a block, in the order that this client alone knows."""
        return lists_of(block, served, self.keys.order if scheme == "ecdh" else None)

    async def _read(self) -> None:
        self.block = await asyncio.to_thread(self._load)

    def _load(self) -> Block:
        keys = self.keys
        return load_block(
            self._config,
            keys.digest,
            self.forgotten,
            own_key=keys.order,
            progress=self._progress,
            version=self._version,
        )

    async def _is_outdated(self) -> bool:
        await asyncio.to_thread(self.forgotten.refresh)
        return self.block.forgotten != self.forgotten.stamp


def open_tables(
    config: ClientConfig, state: StateDirectory, progress: WorkProgress | None = None
) -> OwnTables:
    """Read this client's keys, who is forgotten, and its tables; raises what is wrong with them."""
    keys = read_keys(state, config.id_secret_file)
    forgotten = ErasureList(config.state, keys, config.federation)
    block = load_block(config, keys.digest, forgotten, own_key=keys.order, progress=progress)
    return OwnTables(config, keys, forgotten, block, progress)


def lists_of(block: Block, served: People, order: bytes | None) -> dict[str, Listing]:
    """List the people of each table; those to serve are everybody whom this client knows.

    The order is drawn from a key where ids are compared as points. Then only the list of everybody
    is sent, and the others are parts of it.
    """
    train = People(block.train.ids, block.train.digests)
    test = People(block.test.ids, block.test.digests) if block.test else NOBODY
    everybody = listing(train, test, served, order=order)
    if order is None:
        return {"train": listing(train), "test": listing(test), "serve": everybody}
    return {
        "train": everybody.of_table(0, 0),
        "test": everybody.of_table(1, len(train.ids)),
        "serve": everybody,
    }
