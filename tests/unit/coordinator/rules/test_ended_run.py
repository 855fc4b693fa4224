"""The last run that ended: what is on disk of it, as this release and the one before write it."""

import json

import pytest

from laser_vfl.coordinator.rules.run import EndedRun

ENDED = [
    EndedRun(),
    EndedRun("run-1", has_finished=True),
    EndedRun("run-1", reason="bank refused shop in the alignment: it sends nonsense"),
]


@pytest.mark.parametrize("ended", [*ENDED, EndedRun("run-1", reason="finished")], ids=str)
def test_it_is_the_same_after_a_restart(ended):
    assert EndedRun.restore(json.loads(json.dumps(ended.snapshot()))) == ended


@pytest.mark.parametrize("ended", ENDED, ids=str)
def test_the_release_before_wrote_the_outcome_alone(ended):
    stored = ended.snapshot()
    del stored["last_has_finished"]
    assert stored == {"last": [ended.id, ended.outcome]}
    assert EndedRun.restore(stored) == ended
