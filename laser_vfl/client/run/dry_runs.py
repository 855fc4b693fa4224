"""Requests for a dry run of the alignment, and which dry run answers each of them."""

import asyncio
from dataclasses import dataclass, field

from laser_vfl.client.alignment.aligner import Aligned
from laser_vfl.client.session.coordinator_session import Session
from laser_vfl.core.errors import LaserError

Outcome = Aligned | LaserError


@dataclass(eq=False)
class _DryRunRequest:
    """One request. Dry runs are numbered; those before `number` began before it was made."""

    answer: asyncio.Future[Aligned]
    number: int | None = None


@dataclass
class DryRuns:
    """The open requests. A dry run may end before the coordinator has confirmed its request."""

    requests: list[_DryRunRequest] = field(default_factory=list)
    _last: tuple[int, Outcome] | None = None
    _withdrawing: set[asyncio.Task[None]] = field(default_factory=set)

    async def ask(self, session: Session) -> Aligned:
        """Have everybody who is there align, and wait for the outcome."""
        request = _DryRunRequest(asyncio.get_running_loop().create_future())
        self.requests.append(request)
        try:
            request.number = await session.dry_run()
            if self._last is not None:
                self.tell(self._last[1], self._last[0])
            return await request.answer
        except asyncio.CancelledError:  # whoever asked hung up, or waited long enough
            if self.requests == [request]:
                withdrawing = asyncio.create_task(session.withdraw_dry_run())
                self._withdrawing.add(withdrawing)
                withdrawing.add_done_callback(self._withdrawing.discard)
            raise
        finally:
            self.requests.remove(request)

    def tell(self, outcome: Outcome, number: int) -> None:
        """Tell all who wait for this dry run how it ended.

        When it failed here, this client's own reason comes first and is kept: the coordinator's,
        which follows, says less.
        """
        if self._last is not None and self._last[0] == number:
            outcome = self._last[1]
        is_asking = any(request.number is None for request in self.requests)
        is_kept = is_asking or isinstance(outcome, LaserError)
        self._last = (number, outcome) if is_kept else None
        for request in self.requests:
            if request.number is not None and request.number <= number:
                _answer(request, outcome)

    def tell_all(self, error: LaserError) -> None:
        """Tell everybody that there will be no answer."""
        self._last = None
        for request in self.requests:
            _answer(request, error)


def _answer(request: _DryRunRequest, outcome: Outcome) -> None:
    if request.answer.done():
        return
    if isinstance(outcome, LaserError):
        request.answer.set_exception(outcome)
    else:
        request.answer.set_result(outcome)
