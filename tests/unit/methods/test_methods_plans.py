"""Who predicts under each method, which samples, from which blocks and with which weights."""

import pytest
from methods_world import OBSERVED, Small, subsets_of

from laser_vfl.methods.registry import METHODS

ACTIVE = ("standard", "plug")
EXPLICIT = ("local", "standard", "ensemble", "combinatorial", "plug")


@pytest.mark.parametrize("method", EXPLICIT)
def test_who_has_a_head(method):
    assert Small(method, labelled=(1, 2)).heads == (0b010 if method in ACTIVE else 0b110)


def test_every_method_that_can_be_named_is_here():
    assert set(EXPLICIT) <= set(METHODS)


def learnt(method, client, blocks):
    """With which blocks a client, of which 1 and 2 have labels, learns from a sample."""
    if client not in blocks:
        return set()
    if method in ("local", "ensemble"):
        return {client} if client in (1, 2) else set()
    if method == "standard":
        return blocks if blocks == {0, 1, 2} else set()
    if method == "plug":
        return blocks if 1 in blocks else set()
    return blocks if blocks & {1, 2} else set()


def predicted(method, client, blocks):
    """The same for what it contributes to predictions."""
    if client not in blocks:
        return set()
    if method == "ensemble":
        return blocks & {1, 2} if client in (1, 2) else set()
    if method == "standard" and client == 1:
        return blocks if blocks == {0, 1, 2} else {1}
    return learnt(method, client, blocks)


@pytest.mark.parametrize("method", EXPLICIT)
@pytest.mark.parametrize("client", range(3))
@pytest.mark.parametrize("predicts", [False, True], ids=["training", "predicting"])
def test_rows_and_blocks(method, client, predicts):
    world = Small(method, labelled=(1, 2))
    used = predicted if predicts else learnt
    expected = {
        n: used(method, client, blocks)
        for n, blocks in enumerate(OBSERVED)
        if used(method, client, blocks)
    }
    plan = world.plan(client, predicts=predicts)
    samples = world.samples(plan) if plan else []
    # Rows of a step that reach no head are not worth leaving out.
    alone = {n for n in samples if client == 0 and OBSERVED[n] == {0}}
    assert set(samples) - alone == set(expected)
    for share in plan.shares if plan else ():
        rows = range(len(samples)) if share.positions is None else share.positions
        together = {n for n, blocks in expected.items() if share.peer in blocks}
        assert {samples[i] for i in rows} == together
        assert (share in plan.head_peers) == bool(world.heads >> share.peer & 1)


@pytest.mark.parametrize("method", EXPLICIT)
def test_both_sides_of_a_pair_list_the_same_samples(method):
    world = Small(method, labelled=(1, 2))
    for predicts in (False, True):
        plans = [world.plan(k, predicts=predicts) for k in range(3)]
        for plan in filter(None, plans):
            samples = world.samples(plan)
            for share in plan.shares:
                other = plans[share.peer]
                back = next(s for s in other.shares if s.peer == plan.client)
                here = samples if share.positions is None else [samples[i] for i in share.positions]
                theirs = world.samples(other)
                there = theirs if back.positions is None else [theirs[i] for i in back.positions]
                assert here == there


def drawn(world, client):
    """Each task as (sample, {block: share in the average}, weight)."""
    plan = world.plan(client)
    tasks = world.learners[client].draw_tasks(plan)
    rows = tasks.averaging_btp.flatten(0, 1)
    rows = rows if tasks.kept_n is None else rows[tasks.kept_n]
    samples = world.samples(plan)
    return [
        (samples[position], {b: s for b, s in zip(plan.blocks, row, strict=True) if s}, weight)
        for row, position, weight in zip(
            rows.tolist(), tasks.sample_n.tolist(), tasks.weight_n.tolist(), strict=True
        )
    ]


def expected_tasks(method, client):
    num, tasks = len(OBSERVED), []
    for n, blocks in enumerate(OBSERVED):
        if client not in blocks:
            continue
        if method in ("local", "ensemble"):
            tasks.append((n, {client: 1.0}, 1 / num))
        elif (method == "standard" and len(blocks) == 3) or method == "plug":
            tasks.append((n, dict.fromkeys(blocks, 1 / 3), 1 / num))
        elif method == "combinatorial":
            for subset in subsets_of(blocks):
                if client in subset:
                    weight = 1 / num / len({1, 2} & set(subset))
                    tasks.append((n, dict.fromkeys(subset, 1 / len(subset)), weight))
    return tasks


@pytest.mark.parametrize("method", EXPLICIT)
@pytest.mark.parametrize("client", [1, 2])
def test_tasks_and_weights(method, client):
    world = Small(method, labelled=(1, 2), drop_probability=0.0)
    if not world.heads >> client & 1:
        assert world.learners[client].models.keys() == {"representation"}
        return

    def sorted_(tasks):
        return sorted(tasks, key=lambda task: (task[0], sorted(task[1])))

    found, expected = sorted_(drawn(world, client)), sorted_(expected_tasks(method, client))
    assert len(found) == len(expected) > 0
    for (n, shares, weight), (m, wanted, heavy) in zip(found, expected, strict=True):
        assert n == m
        assert shares == pytest.approx(wanted)
        assert weight == pytest.approx(heavy)


def test_the_divisor_of_a_step_is_that_of_the_settings():
    world = Small("local", batch_size=100)
    assert all(weight == pytest.approx(1 / 100) for *_, weight in drawn(world, 1))
    world = Small("local", batch_size=100, loss_divisor="rows")
    assert all(weight == pytest.approx(1 / len(OBSERVED)) for *_, weight in drawn(world, 1))


@pytest.mark.parametrize("method", ACTIVE)
def test_without_the_active_party_nobody_has_anything_to_do(method):
    world = Small(method, labelled=(1,))
    before = world.parameters()
    for client in (0, 2):
        assert world.plan(client, 0b101) is None
        assert world.plan(client, 0b101, predicts=True) is None
    assert world.oracle.step(0, 0b101) == {}
    assert all((before[name] == value).all() for name, value in world.parameters().items())


def test_a_passive_client_that_is_gone_ends_standard_training_and_not_that_of_plug():
    assert Small("standard").plan(0, 0b011) is None
    plan = Small("plug").plan(0, 0b011)
    assert plan is not None
    assert plan.blocks == (0, 1)


def test_whom_a_client_asks_when_it_predicts():
    worlds = {method: Small(method, labelled=(1, 2)) for method in EXPLICIT}
    assert {
        method: [world.method.blocks.asks(world.context(k)) for k in (1, 2)]
        for method, world in worlds.items()
    } == {
        "local": [0, 0],
        "standard": [0b101, 0b011],
        "ensemble": [0b100, 0b010],
        "combinatorial": [0b101, 0b011],
        "plug": [0b101, 0b011],
    }
