"""The rules of membership at one client: which view it may train by, and when it has to stop."""

from dataclasses import dataclass

from laser_vfl.client.session.member_view import MemberView


@dataclass
class MembershipFollower:
    """One process in one run. It trains by one view at a time, and by none older than the last."""

    next_step: int = 0
    """The first step that it has not done."""
    view: MemberView | None = None
    """The view that it trains by, or did last."""
    running: bool = False
    leaving: bool = False
    _barred: int = 0
    """The process trains by no generation up to this one any more."""
    _member_of: int = 0
    """The last generation that had this process in it."""
    _coming: MemberView | None = None
    _excluded: bool = False

    def hear(
        self, generation: int, stop: int, view: MemberView | None, *, left_out: bool = False
    ) -> None:
        """Take in what the coordinator says; `view` is None when this process is not in it.

        It may have been left out of a view that it never heard of.
        """
        self._barred = max(self._barred, stop)
        if view is not None:
            self._member_of = max(self._member_of, generation)
        elif left_out or 0 < self._member_of < generation:
            self._excluded = True
        if self.leaving:
            self._barred = max(self._barred, self._member_of)
        if generation <= max(self._barred, self._generation):
            return
        self._barred = max(self._barred, generation - 1)
        if view is not None:
            self._coming = view

    def leave(self) -> None:
        """Begin to leave: take part in no further view."""
        self.leaving = True
        self._barred = max(self._barred, self._generation, self._member_of)

    def load(self, next_step: int) -> None:
        """Have the state of a checkpoint: the steps before `next_step` are done."""
        self.next_step = next_step

    def begin(self) -> MemberView:
        """Start to train by the view that has come."""
        assert self._coming is not None
        self.view, self._coming, self.running = self._coming, None, True
        self.next_step = max(self.next_step, self.view.my_next_step)
        return self.view

    def ended(self, next_step: int) -> None:
        """Nothing of this view is under way any more."""
        self.running, self.next_step = False, next_step

    def renew(self) -> None:
        """Become another process in the eyes of the others; what was learnt stays."""
        self.view, self._coming, self._excluded = None, None, False
        self._barred = self._member_of = 0

    @property
    def must_stop(self) -> bool:
        """Whether what is under way has to end at the next boundary of a step."""
        return self.running and self._generation <= self._barred

    @property
    def may_begin(self) -> bool:
        """Whether there is a view to train by."""
        coming = self._coming
        is_free = not self.running and not self.leaving
        return coming is not None and is_free and coming.generation > self._barred

    @property
    def is_excluded(self) -> bool:
        """Whether the others go on without this process; it has to register anew."""
        return self._excluded and not self.running

    @property
    def stopped(self) -> int:
        """The generation up to which it has stopped; 0 while it trains or may begin to."""
        if self.running or not self._member_of or self._member_of > self._barred:
            return 0
        return self._barred

    @property
    def _generation(self) -> int:
        return self.view.generation if self.view else 0
