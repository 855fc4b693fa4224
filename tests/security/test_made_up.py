"""Messages that nobody would send, by the thousand, to every call: no crash, and nothing leaks."""

import pytest
from attacked_federation import AttackedFederation, outcome
from hypothesis import HealthCheck, given, settings
from test_access import shown_by

from tests.support.attacks.attack_results import Results
from tests.support.attacks.every_call import METHODS, call, requests

CALLERS = {"coordinator": "shop", "peers": "shop", "predictions": "bank"}
BUGS = ("UNKNOWN", "INTERNAL", "CANCELLED")
FEW, MANY = 20, 500
TIMEOUT_S = 3.0
SLOW = ("/laser_vfl.v1.Prediction/Align",)
"""A call that aligns tables when the message is good."""

EVERY = [(door, path) for door, methods in METHODS.items() for path in methods]
SIZES = [pytest.param(FEW, marks=pytest.mark.core), MANY]


def _send(attacked: AttackedFederation, who: str, door: str, path: str, num: int) -> set[str]:
    """Send made-up messages; return all ways in which calls ended."""
    ends: set[str] = set()
    with attacked.door(door, shown_by(attacked, who)) as channel:

        @settings(
            max_examples=num // 5 if path in SLOW else num,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(contents=requests(METHODS[door][path]))
        def send(contents: list[bytes]) -> None:
            ends.add(outcome(lambda: call(channel, path, contents, TIMEOUT_S)))

        send()
    return ends


@pytest.mark.parametrize("num", SIZES)
@pytest.mark.parametrize(("door", "path"), EVERY)
def test_made_up_messages_of_a_member(
    door: str, path: str, num: int, attacked: AttackedFederation, results: Results
) -> None:
    ends = attacked.after(lambda: _send(attacked, CALLERS[door], door, path, num))
    bugs = [end for end in ends if end.startswith(BUGS)]
    found = "no INTERNAL, no UNKNOWN" if ends and not bugs else f"{path}: {bugs}"
    results.note("made-up messages, member", found)


@pytest.mark.parametrize("num", [pytest.param(5, marks=pytest.mark.core), 100])
@pytest.mark.parametrize(("door", "path"), EVERY)
def test_made_up_messages_of_an_outsider(
    door: str, path: str, num: int, attacked: AttackedFederation, results: Results
) -> None:
    (found,) = attacked.after(lambda: _send(attacked, "somebody", door, path, num))
    results.note("made-up messages, outsider", found)
