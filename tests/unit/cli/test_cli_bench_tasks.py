"""`bench tasks`: both ways to run a head's tasks give the same loss, and the ratio is printed."""

import json

import pytest
import torch

from laser_vfl.cli.bench_tasks import BenchOptions, _Looping, _oracle, run_bench_tasks
from laser_vfl.core.learner import Learner


def test_one_task_after_another_gives_the_same_loss():
    at_once, looped = _oracle(4, Learner), _oracle(4, _Looping)
    for step in range(3):
        expected = at_once.step(step, 0b1111)
        assert looped.step(step, 0b1111) == pytest.approx(expected, rel=1e-5)


def test_it_prints_ratios(capsys):
    threads = torch.get_num_threads()
    try:
        run_bench_tasks(BenchOptions(steps=1, repeats=1), as_json=True)
    finally:
        torch.set_num_threads(threads)
    result = json.loads(capsys.readouterr().out)
    assert result["loop_to_batched"] > 0
    assert result["many_to_few"] > 0
