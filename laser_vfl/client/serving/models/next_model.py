"""The model that was trained last, for as long as some organisation holds it back."""

import asyncio
import logging
from typing import Literal

from laser_vfl.client.session.coordinator_session import PublicationNews
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.core.errors import MismatchError, quoted

log = logging.getLogger(__name__)

Policy = Literal["auto", "hold"]


class NextModel:
    """At most one. It is served when this organisation and all others have published it.

    This organisation says so with `publish`, or beforehand by its policy; the coordinator says when
    all others have. Until then all clients serve the run before, so that their blocks fit.
    """

    def __init__(self, state: StateDirectory, policy: Policy) -> None:
        self.run, self.is_published = state.read_next() or ("", False)
        self.is_published |= policy == "auto" and bool(self.run)
        self._changed = asyncio.Event()
        """Set when something has changed that decides whether it may be served."""
        self._state = state
        self._policy = policy
        self._heard = PublicationNews()

    @property
    def holds(self) -> bool:
        """Whether this organisation holds it back."""
        return bool(self.run) and not self.is_published

    @property
    def held_by(self) -> tuple[str, ...]:
        """The clients that hold it back, as the coordinator says."""
        return self._heard.held_by if self.run and self.run == self._heard.held_run else ()

    @property
    def is_due(self) -> bool:
        """Whether it may be served now."""
        return self.is_published and self.run in self._heard.live

    def hear(self, publication: PublicationNews) -> None:
        """Hear from the coordinator which runs are live."""
        if publication != self._heard:
            self._heard = publication
            self._changed.set()

    async def news(self) -> None:
        """Wait until something has changed that decides whether it may be served."""
        await self._changed.wait()
        self._changed.clear()

    async def trained(self, run: str) -> None:
        """Keep the model of a run that others still train, if this client holds it back."""
        if self._policy == "hold" and run != self.run:
            await self._keep(run, is_published=False)

    async def is_held(self, run: str) -> bool:
        """Tell whether the model of a run that has ended is held back; then it is kept here."""
        if run == self.run and not self.is_published:
            log.warning(
                "run %s is trained, and held back by this client (publish: hold); "
                "`laser-vfl runs publish %s --config FILE`, with its configuration, publishes it",
                run,
                run,
            )
            return True
        if run != self._heard.held_run:
            return False
        await self._keep(run, is_published=True)
        who = ", ".join(self._heard.held_by)
        log.warning("run %s is trained, and served when it is not held back any more: %s", run, who)
        return True

    async def publish(self, run: str) -> None:
        """Serve this model as soon as all others have published it, too."""
        if not run or run != self.run:
            found = f"the one that is not served yet is {self.run}" if self.run else "none is"
            raise MismatchError(
                f"there is no run {quoted(run)} here that is held back; {found}",
                hint="`laser-vfl runs list` shows the runs",
            )
        if not self.is_published:
            await self._keep(run, is_published=True)
            log.info("run %s is published here", run)
        self._changed.set()

    async def forget(self, run: str) -> None:
        """Never serve the model of a run that came to nothing."""
        if run and run == self.run:
            self.served()
            await asyncio.to_thread(self._state.forget_next)

    def served(self) -> None:
        """Keep no model any more: that of this run, or of a later one, is served."""
        self.run, self.is_published = "", False

    async def _keep(self, run: str, *, is_published: bool) -> None:
        await asyncio.to_thread(self._state.keep_next, run, is_published=is_published)
        self.run, self.is_published = run, is_published
