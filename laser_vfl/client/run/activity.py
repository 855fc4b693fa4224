"""What a client does now: a label for the metrics, and a sentence for people."""

from dataclasses import dataclass
from enum import Enum


class Activity(Enum):
    """What a client can do; the values are the labels in the metrics."""

    STARTING = "starting"
    IDLE = "idle"
    """Until somebody else wants a run, with or without a model."""
    GATHERING = "gathering"
    AWAITING_APPROVAL = "awaiting_approval"
    """It asks for a run, which an operator of the coordinator has to approve."""
    ALIGNING = "aligning"
    TRAINING = "training"
    FINISHING = "finishing"
    UNABLE = "unable"
    """The next run is wanted, and the tables or a limit do not allow it."""


@dataclass(frozen=True)
class CurrentActivity:
    """An activity, and how a client's status says it."""

    activity: Activity
    text: str


STARTING = CurrentActivity(Activity.STARTING, "starting")
IDLE = CurrentActivity(Activity.IDLE, "idle")
IDLE_WITHOUT_MODEL = CurrentActivity(Activity.IDLE, "no model; waiting for a run")
GATHERING = CurrentActivity(Activity.GATHERING, "gathering")
ALIGNING = CurrentActivity(Activity.ALIGNING, "aligning")
TRAINING = CurrentActivity(Activity.TRAINING, "training")
FINISHING = CurrentActivity(Activity.FINISHING, "waiting for the others to finish")


def awaiting_approval(*, has_model: bool) -> CurrentActivity:
    """Return that of a client which asks for a run that has to be approved."""
    text = "waiting for an approval of the run that it asks for"
    return CurrentActivity(Activity.AWAITING_APPROVAL, text if has_model else f"no model; {text}")


def unable(error: Exception) -> CurrentActivity:
    """Return that of a client which cannot take part in the next run."""
    return CurrentActivity(Activity.UNABLE, f"cannot take part in a run: {error}")
