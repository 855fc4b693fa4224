"""How fault tests shorten the waiting times of real daemons; no configuration key does.

Waiting times are fields of small frozen dataclasses: `MembershipPolicy` and `AlignmentPolicy` of
the coordinator's rules, `WaitingTimes` of the client. A daemon starts with their defaults. The
environment variable LASER_VFL_TEST_POLICY may hold JSON with other values, by class and field:

    LASER_VFL_TEST_POLICY='{"MembershipPolicy": {"away_s": 0.2}, "WaitingTimes": {"retry_s": 0.1}}'

It is read when a daemon starts, here and nowhere else, and the daemon logs a warning. It is for
tests alone: the values are not checked, and the defaults depend on each other.
"""

import json
import logging
import os
from dataclasses import replace
from typing import Any, TypeVar

log = logging.getLogger(__name__)

VARIABLE = "LASER_VFL_TEST_POLICY"

P = TypeVar("P", bound=Any)


def for_tests(policy: P) -> P:
    """Return a policy with the fields that a test wants otherwise."""
    wanted = json.loads(os.environ.get(VARIABLE, "{}")).get(type(policy).__name__)
    if not wanted:
        return policy
    log.warning("waiting times of a test are in force: %s", wanted)
    return replace(policy, **wanted)
