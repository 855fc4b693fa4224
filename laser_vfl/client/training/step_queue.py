"""What comes next of the steps under way: a rule that knows step numbers, and nothing else.

Steps begin in their order, their heads learn in that order, and they are applied in that order.
With which parameters a step begins is a matter of its number alone, whatever came first.

With several steps under way, the gradients of one and the representations of a later one are ready
at about the same time, and leave together. What is ready first is kept back until then. What a
client waits for never depends on what others keep back, but for steps before it: so nobody waits
for ever.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

Arrived = Callable[[int], bool]
"""Tells whether all is here that others send in a step."""

Action = Literal["begin", "learn", "apply", "wait", "end"]


class StepQueue:
    """The steps that are left, and those that have begun and are not applied."""

    def __init__(
        self,
        numbers: Iterable[int],
        applied_before: Callable[[int], int],
        *,
        together: bool = False,
    ) -> None:
        """`applied_before` returns the step up to which all are applied when a step begins.

        With `together`, what two steps send leaves together where that is possible.
        """
        self._applied_before = applied_before
        self._together = together
        self._unsent: list[tuple[Action, int]] = []
        self._left = iter(numbers)  # there may be more than fit into memory
        self.upcoming = next(self._left, None)
        """The first step that has not begun; None if all have."""
        self._under_way: deque[int] = deque()
        self._learning: deque[int] = deque()

    @property
    def oldest(self) -> int | None:
        """The first step that is not applied, of those that have begun."""
        return self._under_way[0] if self._under_way else None

    @property
    def learning(self) -> int | None:
        """The first step that has begun, and whose head has not learnt."""
        return self._learning[0] if self._learning else None

    def begun(self, *, learns: bool) -> None:
        """The upcoming step has begun; `learns` if this client's head has a part in it."""
        number = self.upcoming
        assert number is not None
        self.upcoming = next(self._left, None)
        self._under_way.append(number)
        self._unsent.append(("begin", number))
        if learns:
            self._learning.append(number)

    def learnt(self) -> None:
        """The head has learnt from the first step that it had not learnt from."""
        self._unsent.append(("learn", self._learning.popleft()))

    def applied(self) -> None:
        """The oldest step is applied."""
        self._under_way.popleft()

    def next(self, has_representations: Arrived, has_gradients: Arrived) -> Action:
        """Return what is possible now; or that it has to wait, or that all is done."""
        oldest, learning = self.oldest, self.learning
        if oldest is not None and self._may_apply(oldest) and has_gradients(oldest):
            return "apply"
        if self._may_begin():
            return "begin"
        if learning is not None and has_representations(learning):
            return "learn"
        return "end" if oldest is None else "wait"

    def leaves(self, *, waits: bool) -> bool:
        """Tell whether what is ready to be sent leaves now; `waits` if nothing else is possible."""
        if not self._unsent:
            return False
        if not self._together or len(self._unsent) > 1:
            return True
        if ("learn", self.oldest) in self._unsent:  # what everybody waits for
            return True
        return waits and not self._may_keep_back()

    def left(self) -> None:
        """All that was ready to be sent is on its way."""
        self._unsent.clear()

    def _may_keep_back(self) -> bool:
        """Tell whether something else will soon go with the one thing that is ready.

        It will not when several steps have to be applied before the next one begins.
        """
        oldest, ((what, number),) = self.oldest, self._unsent
        if oldest is None or self.upcoming is None:
            return False
        if self._applied_before(self.upcoming) > oldest + 1:
            return False
        return what == "learn" or (self.learning is not None and self.learning < number)

    def _may_begin(self) -> bool:
        """Tell whether all is applied that the upcoming step begins with."""
        if self.upcoming is None:
            return False
        return self.oldest is None or self.oldest >= self._applied_before(self.upcoming)

    def _may_apply(self, oldest: int) -> bool:
        """Tell whether the head has learnt, and nothing is left that begins without this step."""
        if oldest == self.learning:
            return False
        return self.upcoming is None or oldest < self._applied_before(self.upcoming)
