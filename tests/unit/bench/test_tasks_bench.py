"""`bench tasks`: both ways to run a head's tasks give the same loss, and the ratio is printed."""

import json

import pytest
import torch

from laser_vfl.bench.tasks_bench import _Looping, _oracle
from laser_vfl.cli.main import app
from laser_vfl.core.training.learner import Learner


def test_one_task_after_another_gives_the_same_loss():
    at_once, looped = _oracle(4, Learner), _oracle(4, _Looping)
    for step in range(3):
        expected = at_once.step(step, 0b1111)
        assert looped.step(step, 0b1111) == pytest.approx(expected, rel=1e-5)


def test_it_prints_ratios(capsys):
    threads = torch.get_num_threads()
    try:
        app(
            ["bench", "tasks", "--steps", "5", "--repeats", "1", "--format", "json"],
            standalone_mode=False,
        )
    finally:
        torch.set_num_threads(threads)
    result = json.loads(capsys.readouterr().out)
    assert result["loop_to_batched"] > 0
    assert result["many_to_few"] > 0
