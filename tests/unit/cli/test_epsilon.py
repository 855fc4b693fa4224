"""`laser-vfl epsilon`: a result that can be read and one that can be parsed."""

import json

import pytest
from typer.testing import CliRunner

from laser_vfl.cli.main import app
from laser_vfl.client.privacy_budget import epsilon

ASKED = ["epsilon", "--noise", "4", "--releases", "21"]


def test_json():
    result = CliRunner().invoke(app, [*ASKED, "--delta", "1e-6", "--format", "json"])
    assert json.loads(result.stdout) == {
        "noise": 4.0,
        "delta": 1e-6,
        "num_releases": 21,
        "epsilon_per_release": epsilon(4.0, 1, 1e-6),
        "epsilon": epsilon(4.0, 21, 1e-6),
    }


def test_text():
    one, many = CliRunner().invoke(app, ASKED).stdout.splitlines()
    assert one.split() == [
        "releases",
        "1",
        "epsilon",
        f"{epsilon(4, 1, 1e-5):.4g}",
        "delta",
        "1e-05",
    ]
    assert f"epsilon {epsilon(4, 21, 1e-5):.4g}" in many


@pytest.mark.parametrize("wrong", [["--noise", "0"], ["--releases", "0"], ["--delta", "1"]])
def test_what_makes_no_sense_is_refused(wrong):
    assert CliRunner().invoke(app, [*ASKED, *wrong]).exit_code == 2
