"""Who waits for a dry run of the alignment, and which one is the answer."""

import asyncio
from dataclasses import dataclass, field

from laser_vfl.client.aligning import Aligned
from laser_vfl.client.session import Session
from laser_vfl.core.errors import LaserError

Outcome = Aligned | LaserError


@dataclass(eq=False)
class _Wish:
    """Somebody who asks. Alignments are counted; those before `number` began before the wish."""

    answer: asyncio.Future[Aligned]
    number: int | None = None


@dataclass
class DryRuns:
    """The wishes of this client's owner. News of an alignment may come before the wish is taken."""

    wishes: list[_Wish] = field(default_factory=list)
    _last: tuple[int, Outcome] | None = None

    async def ask(self, session: Session) -> Aligned:
        """Have everybody who is there align, and wait for the outcome."""
        wish = _Wish(asyncio.get_running_loop().create_future())
        self.wishes.append(wish)
        try:
            wish.number = await session.dry_run()
            if self._last is not None:
                self.tell(self._last[1], self._last[0])
            return await wish.answer
        finally:
            self.wishes.remove(wish)

    def tell(self, outcome: Outcome, number: int) -> None:
        """Tell whoever waits for this alignment how it ended."""
        is_asking = any(wish.number is None for wish in self.wishes)
        self._last = (number, outcome) if is_asking else None
        for wish in self.wishes:
            if wish.number is not None and wish.number <= number:
                _answer(wish, outcome)

    def tell_all(self, error: LaserError) -> None:
        """Tell everybody that there will be no answer."""
        self._last = None
        for wish in self.wishes:
            _answer(wish, error)


def _answer(wish: _Wish, outcome: Outcome) -> None:
    if wish.answer.done():
        return
    if isinstance(outcome, LaserError):
        wish.answer.set_exception(outcome)
    else:
        wish.answer.set_result(outcome)
