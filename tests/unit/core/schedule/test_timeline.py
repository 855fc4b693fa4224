"""What each step of a run is."""

from collections import Counter

from laser_vfl.core.alignment import Group
from laser_vfl.core.schedule.schedule import Schedule
from laser_vfl.core.schedule.timeline import Timeline
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings

GROUPS = (Group(0b001, 5), Group(0b011, 6), Group(0b111, 3))
KEYS = {"representation_dim": 2, "batch_size": 4, "epochs": 3, "distillation_epochs": 2}


def timeline(method: str) -> Timeline:
    settings = TrainingSettings(method=method, **KEYS)
    return Timeline(method_named(method).preparation, settings, GROUPS, 3)


def test_most_methods_only_train_and_their_steps_are_the_schedule():
    found = timeline("laser")
    schedule = Schedule(GROUPS, seed=0, batch_size=4, batching="mixed")
    assert found.num_steps == 3 * schedule.steps_per_epoch
    for number in range(found.num_steps):
        scheduled, step = found.step(number), schedule.step(number)
        assert scheduled.kind == "training"
        assert scheduled.exchange is None
        assert scheduled.progress == number // schedule.steps_per_epoch / 3
        assert [(s.group, s.places.tolist()) for s in scheduled.batch.segments] == [
            (s.group, s.places.tolist()) for s in step.segments
        ]


def test_vfedtrans_has_three_stages_one_after_the_other():
    found = timeline("vfedtrans")
    every = [found.step(number) for number in range(found.num_steps)]
    kinds = [scheduled.kind for scheduled in every]
    assert kinds == sorted(kinds, key=["exchange", "alone", "training"].index)
    # 9, 3 and 3 samples of the pairs in chunks of 4, up and down.
    assert Counter(kinds) == {
        "exchange": 2 * (3 + 1 + 1),
        "alone": 2 * found.steps_per_epoch,
        "training": 3 * found.steps_per_epoch,
    }
    assert [(stage.kind, stage.name, stage.num_steps) for stage in found.stages] == [
        ("exchange", "joint svd", kinds.count("exchange")),
        ("alone", "distillation", kinds.count("alone")),
        ("training", "training", kinds.count("training")),
    ]
    assert all(found.step(stage.first).kind == stage.kind for stage in found.stages)
    for number, scheduled in enumerate(every):
        assert (scheduled.exchange is None) != (scheduled.batch is None)
        assert scheduled.batch is None or scheduled.batch.number == number
    assert next(each.progress for each in every if each.kind == "training") == 0


def test_a_step_begins_when_all_but_the_last_ones_are_applied():
    settings = TrainingSettings(method="laser", **KEYS, pipeline=3, checkpoint_every=6)
    found = Timeline(method_named("laser").preparation, settings, GROUPS, 3)
    before = [found.applied_before(number) for number in range(9)]
    # Nothing is under way at a checkpoint, which is before step 6.
    assert before == [0, 0, 0, 0, 1, 2, 6, 6, 6]


def test_without_a_pipeline_every_step_waits_for_the_last_one():
    assert [timeline("laser").applied_before(number) for number in range(9)] == list(range(9))


def test_only_training_is_done_several_steps_at_a_time():
    settings = TrainingSettings(method="vfedtrans", **KEYS, pipeline=2)
    found = Timeline(method_named("vfedtrans").preparation, settings, GROUPS, 3)
    first = found.stages[-1].first
    before = [found.applied_before(number) for number in range(first + 4)]
    assert before == [*range(first + 1), first, first, first + 1]
