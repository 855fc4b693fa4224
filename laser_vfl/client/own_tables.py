"""What this client's tables hold: read again when they have changed or somebody is forgotten."""

import asyncio
from dataclasses import replace

from laser_vfl.client.block import Block, file_stamps, load_block
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.forgotten import Forgotten
from laser_vfl.client.listing import NOBODY, Keys, Listing, People, listing


class OwnTables:
    """The block that this client takes part with."""

    def __init__(
        self, config: ClientConfig, keys: Keys, forgotten: Forgotten, block: Block
    ) -> None:
        self.block = block
        self.is_fresh = True
        """Whether the block is what the tables hold; not after a time of waiting."""
        self._config = config
        self._keys = keys
        self._forgotten = forgotten

    async def refresh(self) -> None:
        """Read the tables again, unless they have just been read."""
        if not self.is_fresh or await self._is_outdated():
            await self._read()
            self.is_fresh = True

    async def leave_out_forgotten(self) -> None:
        """Read the tables again if somebody was forgotten since."""
        if await self._is_outdated():
            await self._read()

    async def as_they_are(self) -> Block:
        """Return what the tables hold now; the block stays as it is."""
        if self.block.stamps == file_stamps(self._config) and not await self._is_outdated():
            return self.block
        return await asyncio.to_thread(self._load)

    async def _read(self) -> None:
        self.block = await asyncio.to_thread(self._load)

    def _load(self) -> Block:
        return load_block(self._config, self._keys.digest, self._forgotten)

    async def _is_outdated(self) -> bool:
        await asyncio.to_thread(self._forgotten.refresh)
        return self.block.forgotten != self._forgotten.stamp


def lists_of(block: Block, served: People, order: bytes | None) -> dict[str, Listing]:
    """List the people of each table; those to serve are everybody whom this client knows."""
    tables = [table for table in (block.train, block.test) if table is not None]
    train, *test = [People(table.ids, table.digests) for table in tables]
    parts = {"train": [train], "test": test, "serve": [train, *test, served]}
    lists = {}
    for table, people in parts.items():
        found = listing(*people, order=order)
        # Where ids are not compared by digests, only those to serve are found by them later.
        is_needed = order is None or table == "serve"
        lists[table] = found if is_needed else replace(found, digests=NOBODY.digests)
    return lists
