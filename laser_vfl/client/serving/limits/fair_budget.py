"""An amount of something, such as memory, that callers share: who has least of it goes first."""

import asyncio
import time
from dataclasses import dataclass
from typing import Self

from laser_vfl.core.errors import LimitExceeded

MAX_WAITING = 16
"""At most so many calls of one caller wait for their turn; more are told to come back."""

RETRY_S = 0.5
"""When to come back, at least. With many that wait, later."""


class Holding:
    """What one call has of a budget, while it is entered."""

    __slots__ = ("_budget", "_caller", "_give_up_at", "_wanted", "amount")

    def __init__(self, budget: "FairBudget", caller: str, wanted: int, give_up_at: float) -> None:
        self._budget = budget
        self._caller = caller
        self._wanted = wanted
        self._give_up_at = give_up_at
        self.amount = 0

    async def __aenter__(self) -> Self:
        await self._budget.take(self._caller, self._wanted, self._give_up_at)
        self.amount = self._wanted
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shrink(0)

    def shrink(self, amount: int) -> None:
        """Keep this much, if it is less, and give back the rest."""
        if amount < self.amount:
            part, self.amount = self.amount - amount, amount
            self._budget.give_back(self._caller, part)


@dataclass(eq=False)
class _Waiting:
    caller: str
    amount: int
    turn: "asyncio.Future[None] | None" = None
    """None if it never had to wait."""


class FairBudget:
    """Gives out up to `total` at a time; lives on one event loop.

    Of the callers that wait, the one that has least goes first, and among equals the one that was
    served longest ago. No other caller overtakes it, however much it wants, so every turn
    comes. A caller that has something already gets no more than half of all, so that others find
    something left.
    """

    def __init__(self, total: int, what: str, max_waiting: int = MAX_WAITING) -> None:
        """`what` says in messages what there is too little of."""
        self._max_waiting = max_waiting
        self.total = total
        self.free = total
        self._what = what
        self._held: dict[str, int] = {}
        self._served_at: dict[str, int] = {}
        self._num_served = 0
        self._waiting: list[_Waiting] = []

    def holding(self, caller: str, amount: int, give_up_at: float) -> Holding:
        """Hold an amount of at most `total` while this lasts, when the caller's turn has come.

        Refuses with a time to come back when too many calls of the caller wait already, and when
        the turn has not come by `give_up_at`, a time of the monotonic clock.
        """
        assert amount <= self.total
        return Holding(self, caller, amount, give_up_at)

    async def take(self, caller: str, amount: int, give_up_at: float) -> None:
        """Take an amount when the caller's turn has come; see `holding`."""
        waiting = _Waiting(caller, amount)
        if not self._waiting and amount <= self.free and self._may_have(waiting):
            self._serve(waiting)
            return
        waiting.turn = turn = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._hand_out()
        if turn.done():
            return
        num_own = sum(other.caller == caller for other in self._waiting)
        if num_own > self._max_waiting:
            self._waiting.remove(waiting)
            raise self._refusal()
        try:
            async with asyncio.timeout(give_up_at - time.monotonic()):
                await turn
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:  # its turn came at that moment
                self._count(caller, -amount)
            self._hand_out()
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise

    def _hand_out(self) -> None:
        """Give to those who wait, in their order, until the next one has to wait for more."""
        while self._waiting:
            able = [one for one in self._waiting if self._may_have(one)]
            if not able:
                return
            first = min(able, key=self._order)  # of equals the one that came first
            if first.amount > self.free:
                return
            self._waiting.remove(first)
            self._serve(first)

    def _serve(self, one: _Waiting) -> None:
        self._count(one.caller, one.amount)
        self._num_served += 1
        self._served_at[one.caller] = self._num_served
        if one.turn is not None:
            one.turn.set_result(None)

    def _may_have(self, one: _Waiting) -> bool:
        held = self._held.get(one.caller, 0)
        return not held or held + one.amount <= self.total / 2

    def _order(self, one: _Waiting) -> tuple[int, int]:
        held = self._held.get(one.caller, 0)
        return held, self._served_at.get(one.caller, 0)

    def give_back(self, caller: str, part: int) -> None:
        """Give back a part of what a caller has taken."""
        self._count(caller, -part)
        self._hand_out()

    def _count(self, caller: str, amount: int) -> None:
        self.free -= amount
        held = self._held.get(caller, 0) + amount
        if held:
            self._held[caller] = held
        else:
            self._held.pop(caller, None)

    def _refusal(self) -> LimitExceeded:
        wait_s = RETRY_S * (1 + len(self._waiting) / self._max_waiting)
        return LimitExceeded(
            f"{self._what} is taken by other requests",
            hint=f"ask again in {wait_s:.1f} s, with fewer requests at the same time",
            retry_after_s=wait_s,
        )
