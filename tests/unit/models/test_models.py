"""Models by name, the user's own factories, and the check before training."""

import sys
import types

import pytest
import torch
from torch import nn

from laser_vfl.core.errors import ConfigError, MismatchError
from laser_vfl.models import (
    build_fusion,
    build_representation,
    check_fusion,
    check_representation,
)


def representation(name, shape, dim=8, hidden=(6, 5), **options):
    return build_representation(
        name, input_shape=shape, representation_dim=dim, hidden=hidden, options=options
    )


def fusion(name, dim=8, num_outputs=3, **options):
    return build_fusion(name, representation_dim=dim, num_outputs=num_outputs, options=options)


def num_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture
def own(monkeypatch):
    """A module of the user's, importable as `own_models`."""
    module = types.ModuleType("own_models")
    monkeypatch.setitem(sys.modules, "own_models", module)
    return module


def test_mlp_is_linear_relu_per_hidden_then_linear():
    module = representation("mlp", (2, 2))
    kinds = [type(layer).__name__ for layer in module]
    assert kinds == ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert num_parameters(module) == 4 * 6 + 6 + 6 * 5 + 5 + 5 * 8 + 8
    assert module(torch.zeros(3, 2, 2)).shape == (3, 8)
    assert num_parameters(representation("mlp", (4,), hidden=())) == 4 * 8 + 8


def test_resnet18_has_the_layers_of_the_original():
    module = representation("resnet18", (3, 8, 8), dim=10)
    # The well-known 11,173,962 of ResNet-18 with a 3×3 stem and ten outputs.
    assert num_parameters(module) == 11_173_962


def test_resnet18_halves_the_image_three_times():
    module = representation("resnet18", (3, 16, 16), width=4, stem_padding=0).eval()
    stem = module.stem(torch.zeros(2, 3, 16, 16))
    assert stem.shape == (2, 4, 14, 14)
    assert module.stages(stem).shape == (2, 32, 2, 2)
    assert module(torch.zeros(2, 3, 16, 16)).shape == (2, 8)
    assert representation("resnet18", (1, 2, 3), width=4)(torch.zeros(2, 1, 2, 3)).shape == (2, 8)


def test_lstm_reads_every_step():
    module = representation("lstm", (5, 3), width=7, layers=2)
    assert module.lstm.num_layers == 2
    rows = torch.randn(4, 5, 3, requires_grad=True)
    output = module(rows)
    assert output.shape == (4, 8)
    output.sum().backward()
    assert (rows.grad.abs().sum(dim=(0, 2)) > 0).all()
    assert representation("lstm", (5, 3)).embedding.out_features == 128


def test_fusion():
    assert isinstance(fusion("linear"), nn.Linear)
    assert num_parameters(fusion("linear")) == 8 * 3 + 3
    assert num_parameters(fusion("mlp")) == 8 * 8 + 8 + 8 * 3 + 3
    assert num_parameters(fusion("mlp", hidden=[4, 2])) == 8 * 4 + 4 + 4 * 2 + 2 + 2 * 3 + 3
    assert num_parameters(fusion("mlp", hidden=4)) == 8 * 4 + 4 + 4 * 3 + 3


@pytest.mark.parametrize(
    ("name", "shape", "options", "match"),
    [
        ("mpl", (4,), {}, 'unknown representation model "mpl"; use lstm, mlp, resnet18, tabular'),
        ("mlp", (4,), {"width": 3}, 'mlp has no option "width"; its options: none'),
        ("mlp", (4,), {"hidden": [0]}, "hidden: expected a list of integers"),
        ("resnet18", (4,), {}, r"needs rows of the shape \(channels, height, width\).* \(4,\)"),
        ("resnet18", (1, 2, 9), {"stem_padding": 0}, "at least 3 pixels"),
        ("resnet18", (1, 9, 9), {"width": "64"}, "option width: expected an integer"),
        ("resnet18", (1, 9, 9), {"depth": 2}, "its options: stem_padding, width"),
        ("lstm", (3, 8, 8), {}, r"lstm needs rows of the shape \(steps, features\)"),
        ("lstm", (3, 8), {"layers": True}, "option layers: expected an integer"),
    ],
)
def test_refused_representations(name, shape, options, match):
    with pytest.raises(ConfigError, match=match):
        representation(name, shape, **options)


def test_refused_fusions():
    with pytest.raises(ConfigError, match='unknown fusion model "max"; use linear, mlp or'):
        fusion("max")
    with pytest.raises(ConfigError, match='linear has no option "bias"'):
        fusion("linear", bias=False)
    with pytest.raises(ConfigError, match="option hidden: expected a list"):
        fusion("mlp", hidden="big")


def test_own_factories(own):
    seen = []

    def make(**given):
        seen.append(given)
        return nn.Identity()

    own.make = make
    own.Group = types.SimpleNamespace(make=make)
    representation("own_models:make", (4,), dropout=0.5)
    fusion("own_models:Group.make")
    assert seen == [
        {"input_shape": (4,), "representation_dim": 8, "dropout": 0.5},
        {"representation_dim": 8, "num_outputs": 3},
    ]


def _fails(input_shape, representation_dim):
    raise TypeError("inside")


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("no_such_module_at_all:make", {}, 'cannot import "no_such_module_at_all"'),
        ("own_models:nothing", {}, 'has no "nothing"'),
        ("own_models:number", {}, "is a int and cannot be called"),
        ("own_models:plain", {}, "returned object"),
        ("own_models:fails", {}, "failed: TypeError: inside"),
        ("own_models:fails", {"depth": 3}, "does not take what it is given: .*depth"),
        ("own_models:plain", {"input_shape": 3}, '"input_shape" cannot be an option'),
        (":make", {}, "names no factory"),
        ("..os:make", {}, "names no factory"),
        ("own_models:", {}, "names no factory"),
    ],
)
def test_refused_factories(own, name, options, match):
    own.number = 3
    own.plain = lambda **given: object()
    own.fails = _fails
    with pytest.raises(ConfigError, match=match) as caught:
        representation(name, (4,), **options)
    assert caught.value.hint


def test_module_that_breaks_on_import(tmp_path, monkeypatch):
    (tmp_path / "breaks_on_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="ZeroDivisionError: division by zero"):
        fusion("breaks_on_import:make")


def test_check_leaves_no_trace():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, rows):
            self.calls += 1
            return self.norm(rows) + torch.rand(())

    module = Counts()
    module.norm.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    random_state = torch.get_rng_state()
    check_representation(module, (4,), 4)
    assert module.training
    assert not module.norm.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize(
    ("name", "shape"), [("mlp", (2, 3)), ("resnet18", (1, 4, 4)), ("lstm", (3, 2))]
)
def test_built_ins_pass_the_check(name, shape):
    options = {} if name == "mlp" else {"width": 4}
    check_representation(representation(name, shape, **options).double(), shape, 8)


def test_check_refuses():
    with pytest.raises(MismatchError, match=r"rows of width 5, .*representation_dim is 8"):
        check_representation(nn.Linear(4, 5), (4,), 8)
    with pytest.raises(MismatchError, match=r"the shape \(2, 4, 8\) for two rows"):
        check_representation(nn.Linear(3, 8), (4, 3), 8)
    with pytest.raises(ConfigError, match=r"does not accept a block of shape \(3,\)"):
        check_representation(nn.Linear(4, 8), (3,), 8)
    with pytest.raises(ConfigError, match="returns tuple"):
        check_representation(nn.LSTM(3, 8, batch_first=True), (4, 3), 8)


def test_check_fusion():
    check_fusion(fusion("mlp"), 8, 3)
    with pytest.raises(ConfigError, match="rows of width 3, the label needs 1 outputs"):
        check_fusion(fusion("linear"), 8, 1)
    with pytest.raises(ConfigError, match="does not accept representations of width 9"):
        check_fusion(fusion("linear"), 9, 3)
