"""Requests for a dry run: who gives up waiting says so, unless somebody else waits as well."""

import asyncio

import pytest

from laser_vfl.client.run.dry_runs import DryRuns
from laser_vfl.core.errors import NotReady


class Session:
    """What a dry run says to the coordinator."""

    def __init__(self):
        self.said = []
        self.asked = asyncio.Event()

    async def dry_run(self):
        self.said.append("asked")
        self.asked.set()
        return len(self.said)

    async def withdraw_dry_run(self):
        self.said.append("withdrawn")


async def waiting(dry_runs, session):
    asking = asyncio.create_task(dry_runs.ask(session))
    await session.asked.wait()
    await asyncio.sleep(0)
    return asking


async def given_up(asking):
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_who_gives_up_alone_withdraws():
    async def scenario():
        dry_runs, session = DryRuns(), Session()
        await given_up(await waiting(dry_runs, session))
        assert session.said == ["asked", "withdrawn"]
        assert not dry_runs.requests

    asyncio.run(scenario())


def test_who_gives_up_while_another_waits_leaves_the_dry_run_alone():
    async def scenario():
        dry_runs, session = DryRuns(), Session()
        first = await waiting(dry_runs, session)
        second = asyncio.create_task(dry_runs.ask(session))
        await asyncio.sleep(0)
        await given_up(first)
        assert "withdrawn" not in session.said
        await given_up(second)
        assert session.said[-1] == "withdrawn"

    asyncio.run(scenario())


def test_who_has_its_answer_withdraws_nothing():
    async def scenario():
        dry_runs, session = DryRuns(), Session()
        asking = await waiting(dry_runs, session)
        dry_runs.tell(NotReady("a run has started"), 1)
        with pytest.raises(NotReady):
            await asking
        assert session.said == ["asked"]

    asyncio.run(scenario())
