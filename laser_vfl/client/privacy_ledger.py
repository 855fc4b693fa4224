"""The ε that this client's noise has spent in all runs so far, in a file of its state directory.

A run is counted as a whole, before any representation leaves for it. Resuming a run adds nothing. A
damaged file is an error: what was spent is not known then.
"""

import hashlib
import json
import logging
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.privacy_budget import epsilon_of, num_releases_of
from laser_vfl.client.storage.state_files import replace
from laser_vfl.core.errors import DataError, MismatchError, TrainingStopped
from laser_vfl.methods.training_settings import TrainingSettings

log = logging.getLogger(__name__)

FILE_NAME = "privacy_spent.json"
VERSION = 1

MAX_RUNS = 1000
"""At most so many runs are kept apart; of older ones only the number of releases is kept."""

MAX_RELEASES, MAX_NOISE = 2**63, 1e6
"""Above what any run lets out, and what a configuration may say; ε of more is no number."""

_HINT = "a run that is not counted does not take place; free some space"


@dataclass(frozen=True)
class _Charge:
    """What one run lets out. Another seed would be another run, whatever it is called."""

    run: str
    seed: int
    noise: float
    num_releases: int


class PrivacyLedger:
    """Counts runs with noise. Without noise, nothing is read or written."""

    def __init__(self, config: ClientConfig) -> None:
        self._privacy = config.privacy
        self._where = config.where("privacy.max_epsilon")
        self._path = config.state / FILE_NAME
        self._charges = self._read() if config.privacy.noise else []

    @property
    def num_runs(self) -> int:
        """How many runs are counted."""
        return len({(charge.run, charge.seed, charge.noise) for charge in self._charges})

    def epsilon_spent(self, num_more: int = 0) -> float:
        """Return the ε of all runs so far, and of so many releases more."""
        releases: Counter[float] = Counter()
        for charge in self._charges:
            releases[charge.noise] += charge.num_releases
        releases[self._privacy.noise] += num_more
        releases = +releases  # without those of which there are none
        return epsilon_of(releases, self._privacy.delta) if releases else 0.0

    def has(self, run: str) -> bool:
        """Tell whether a run is counted."""
        return bool(run) and any(charge.run == run for charge in self._charges)

    def check_possible(self, settings: TrainingSettings) -> None:
        """Raise if a run with these settings would be too much for a client that never had one."""
        most = self._privacy.max_epsilon
        if most is None:
            return
        num_releases = num_releases_of(settings.epochs)
        alone = epsilon_of({self._privacy.noise: num_releases}, self._privacy.delta)
        if alone > most:
            raise MismatchError(
                f"the coordinator says training.epochs: {settings.epochs}, which with this "
                f"client's noise is epsilon {alone:.4g}, and this client requires at most {most:g}",
                where=self._where,
                hint="nothing has left this client. Add noise, agree on fewer epochs, or "
                "allow more",
            )

    def check(self, settings: TrainingSettings) -> None:
        """Raise if one more run with these settings would pass the maximum."""
        most = self._privacy.max_epsilon
        if most is None:
            return
        total = self.epsilon_spent(num_releases_of(settings.epochs))
        if total > most:
            raise TrainingStopped(
                f"epsilon is {self.epsilon_spent():.4g} (runs so far: {self.num_runs}) and would "
                f"be {total:.4g} after one more, and this client requires at most {most:g}",
                where=self._where,
                hint="it takes part in no further run. Add noise, agree on fewer epochs, or allow "
                "more",
            )

    def charge(self, run: str, settings: TrainingSettings, *, is_new: bool) -> None:
        """Count a run before it begins; the file is on disk when this returns.

        One that this client comes back to is counted already, unless its seed or the noise is
        another now. A new one is counted, whatever the coordinator calls it.
        """
        noise = self._privacy.noise
        if not noise:
            return
        charge = _Charge(run, settings.seed, noise, num_releases_of(settings.epochs))
        if not is_new and charge in self._charges:
            return
        self.check(settings)
        charges = _shortened([*self._charges, charge])
        replace(self._path, _written(charges), hint=_HINT)
        self._charges = charges
        log.info(
            "noise on representations: epsilon %.4g in all %d run(s), this one included%s",
            self.epsilon_spent(),
            self.num_runs,
            f"; at most {self._privacy.max_epsilon:g}" if self._privacy.max_epsilon else "",
        )

    def charge_again(self, run: str, settings: TrainingSettings, num_releases: int) -> None:
        """Count releases of a run that goes on from an earlier step, before it does."""
        noise, most = self._privacy.noise, self._privacy.max_epsilon
        if not noise:
            return
        total = self.epsilon_spent(num_releases)
        if most is not None and total > most:
            raise TrainingStopped(
                f"the run goes on from an earlier step, which would make epsilon {total:.4g}, and "
                f"this client requires at most {most:g}",
                where=self._where,
                hint="it takes part in no further run. Add noise, or allow more",
            )
        again = _Charge(run, settings.seed, noise, num_releases)
        charges = _shortened([*self._charges, again])
        replace(self._path, _written(charges), hint=_HINT)
        self._charges = charges
        log.info("steps are done again: epsilon is %.4g by now", total)

    def _read(self) -> list[_Charge]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(f"cannot be read ({error.strerror})") from None
        try:
            stored = json.loads(content)
            charges = [_charge(item) for item in stored["runs"]]
            is_whole = (stored["version"], stored["sha256"]) == (VERSION, _digest(charges))
        except (ValueError, KeyError, TypeError, RecursionError):
            is_whole = False
        if not is_whole:
            raise self._unusable("is not what was written")
        return charges

    def _unusable(self, what: str) -> DataError:
        return DataError(
            f"the ledger of what noise has spent {what}, and nobody could say how much that is",
            where=str(self._path),
            hint="restore it; or move it away to count from zero, and lower max_epsilon by what "
            "the log says was spent",
        )


def _charge(item: dict[str, Any]) -> _Charge:
    charge = _Charge(**item)
    if not isinstance(charge.run, str):
        raise TypeError(charge)
    if not all(
        type(number) is int and 0 <= number <= MAX_RELEASES
        for number in (charge.seed, charge.num_releases)
    ):
        raise TypeError(charge)
    if type(charge.noise) is not float or not 0 < charge.noise <= MAX_NOISE:
        raise TypeError(charge)
    return charge


def _written(charges: list[_Charge]) -> bytes:
    runs = [asdict(charge) for charge in charges]
    return json.dumps({"version": VERSION, "runs": runs, "sha256": _digest(charges)}).encode()


def _digest(charges: list[_Charge]) -> str:
    text = json.dumps([asdict(charge) for charge in charges], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _shortened(charges: list[_Charge]) -> list[_Charge]:
    """Put the oldest together where there are too many."""
    if len(charges) <= MAX_RUNS:
        return charges
    old, kept = charges[: -MAX_RUNS // 2], charges[-MAX_RUNS // 2 :]
    releases: Counter[float] = Counter()
    for charge in old:
        releases[charge.noise] += charge.num_releases
    return [*(_Charge("", 0, noise, num) for noise, num in sorted(releases.items())), *kept]
