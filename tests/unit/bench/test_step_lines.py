"""metrics.jsonl as the demo and the benchmarks read it."""

from laser_vfl.local_federation import step_lines


def test_events_and_half_a_line_are_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert step_lines(path) == []
    path.write_text('{"event": "view"}\n{"step": 1}\n{"step": 2}\n{"event": "checkpoint"}\n{"st')
    assert step_lines(path) == [{"step": 1}, {"step": 2}]
