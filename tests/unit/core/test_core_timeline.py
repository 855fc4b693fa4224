"""What each step of a run is."""

from collections import Counter

from laser_vfl.core.alignment import Group
from laser_vfl.core.schedule import Schedule
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.timeline import Timeline

GROUPS = (Group(0b001, 5), Group(0b011, 6), Group(0b111, 3))
KEYS = {"representation_dim": 2, "batch_size": 4, "epochs": 3, "distillation_epochs": 2}


def timeline(method: str) -> Timeline:
    return Timeline(TrainingSettings(method=method, **KEYS), GROUPS, 3)


def test_most_methods_only_train_and_their_steps_are_the_schedule():
    found = timeline("laser")
    schedule = Schedule(GROUPS, seed=0, batch_size=4, batching="mixed")
    assert found.num_steps == 3 * schedule.steps_per_epoch
    for number in range(found.num_steps):
        moment, step = found.moment(number), schedule.step(number)
        assert moment.stage == "training"
        assert moment.chunk is None
        assert moment.progress == number // schedule.steps_per_epoch / 3
        assert [(s.group, s.places.tolist()) for s in moment.step.segments] == [
            (s.group, s.places.tolist()) for s in step.segments
        ]


def test_vfedtrans_has_three_stages_one_after_the_other():
    found = timeline("vfedtrans")
    moments = [found.moment(number) for number in range(found.num_steps)]
    stages = [moment.stage for moment in moments]
    assert stages == sorted(stages, key=["joint svd", "distillation", "training"].index)
    # 9, 3 and 3 samples of the pairs in chunks of 4, up and down.
    assert Counter(stages) == {
        "joint svd": 2 * (3 + 1 + 1),
        "distillation": 2 * found.steps_per_epoch,
        "training": 3 * found.steps_per_epoch,
    }
    for number, moment in enumerate(moments):
        assert (moment.chunk is None) != (moment.step is None)
        assert moment.step is None or moment.step.number == number
    assert next(m.progress for m in moments if m.stage == "training") == 0
