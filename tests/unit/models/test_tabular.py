"""The model for tables: its embeddings, its options, and what it does with unusual rows."""

import copy

import pytest
import torch

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.table_form import TableForm
from laser_vfl.models import build_fusion, build_representation, check_representation
from laser_vfl.models.tabular import STANDARD_EDGES, Categories, PiecewiseLinear

FORM = TableForm((0, 5, 0, 3, 0), ((-1.0, 0.0, 2.0), (), (0.0, 1.0)))
ROWS = torch.tensor([[0.5, 0.0, 1.0, 4, 0], [-3.0, 0.0, 0.0, 0, 2], [90.0, 0.0, 1.0, 1, 1]])


def tabular(form=FORM, **options):
    shape = (form.flat_width,)
    return build_representation(
        "tabular", input_shape=shape, representation_dim=4, hidden=(), options=options, form=form
    )


def test_a_row_becomes_a_representation():
    model = tabular(width=16).eval()
    check_representation(model, (FORM.width,), 4)
    assert model(ROWS).shape == (3, 4)
    assert torch.equal(model(ROWS), copy.deepcopy(model)(ROWS))
    assert torch.allclose(model(ROWS[:1]), model(ROWS)[:1], atol=1e-6)


@pytest.mark.parametrize("form", [TableForm.of_numbers(3), TableForm((4, 2)), TableForm((1,))])
def test_tables_of_one_kind_alone_can_be_learnt_from(form):
    model = tabular(form)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.zeros(5, form.width)
    model(rows).sum().backward()
    optimizer.step()
    assert model(rows).isfinite().all()


def test_bins_fill_from_edge_to_edge():
    embedding = PiecewiseLinear(((-1.0, 0.0, 2.0), (), (0.0, 1.0)), 1)
    with torch.no_grad():
        embedding.weight_nte.copy_(torch.tensor([[1.0, 10.0], [1.0, 10.0], [1.0, 10.0]])[..., None])
        numbers = torch.tensor([[-5.0, 7.0, -1.0], [-0.5, 7.0, 0.25], [1.0, 7.0, 1.0], [9, 7, 9]])
        embedded = embedding(numbers)
    assert embedded[:, 0].tolist() == [0, 0.5, 6, 11]
    assert embedded[:, 1].tolist() == [0, 0, 0, 0], "a number that did not vary has no bins"
    assert embedded[:, 2].tolist() == [0, 0.25, 1, 1]


def test_edges_that_are_next_to_each_other_do_no_harm():
    embedding = PiecewiseLinear(((0.0, 1e-45, 1.0),), 2)
    assert embedding(torch.tensor([[0.0], [1e-45], [0.5], [-1.0]])).isfinite().all()


def test_edges_of_unknown_numbers_are_those_of_a_standard_normal():
    model = tabular(TableForm.of_numbers(2))
    assert model.numbers.weight_nte.shape == (2, len(STANDARD_EDGES) - 1, 8)
    below = (torch.randn(100_000) < torch.tensor(STANDARD_EDGES)[:, None]).float().mean(dim=1)
    assert torch.allclose(below, torch.arange(1, 17) / 17, atol=0.01)


def test_each_category_has_codes_of_its_own():
    categories = Categories((5, 3), 2)
    with torch.no_grad():
        categories.weight.copy_(torch.arange(16.0).reshape(8, 2))
    assert categories(torch.tensor([[4, 0], [0, 2]])).tolist() == [[8, 9, 10, 11], [0, 1, 14, 15]]


def test_unseen_and_missing_values_are_like_the_mean_until_something_is_learnt():
    weights = Categories((5, 3, 1), 6).weight
    unusual = [0, 1, 5, 6, 8]
    assert not weights[unusual].any()
    usual = [i for i in range(9) if i not in unusual]
    assert weights[usual].any(dim=1).all()


def test_its_state_has_parameters_alone():
    model = tabular()
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_dropout_draws_in_training_alone():
    model = tabular(dropout=0.5)
    torch.manual_seed(3)
    first = model(ROWS)
    assert not torch.equal(first, model(ROWS))
    torch.manual_seed(3)
    assert torch.equal(first, model(ROWS)), "what it draws is a function of the seed"
    model.eval()
    assert torch.equal(model(ROWS), model(ROWS))


def test_it_learns_a_step_that_standardised_numbers_hide():
    torch.manual_seed(0)
    numbers = torch.cat([torch.randn(600, 1) * 0.05, torch.full((6, 1), 9.0)])
    target = (numbers > 0.01).float()
    edges = tuple(torch.quantile(numbers, torch.linspace(0, 1, 33)).tolist())
    model = tabular(TableForm((0,), (edges,)), width=16, layers=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(60):
        outputs = model(numbers)[:, :1]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    assert ((model(numbers)[:, :1] > 0) == (target > 0)).float().mean() > 0.95


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dropout": 1}, "option dropout: expected a number from 0 to below 1, got 1"),
        ({"dropout": "0.1"}, "option dropout: expected a number"),
        ({"dropout": float("nan")}, "option dropout: expected a number"),
        ({"dropout": True}, "option dropout: expected a number"),
        ({"width": 0}, "option width: expected an integer"),
        ({"embedding": 0}, "option embedding: expected an integer"),
        ({"depth": 3}, "its options: width, layers, embedding, dropout"),
    ],
)
def test_refused_options(options, match):
    with pytest.raises(ConfigError, match=match):
        tabular(**options)


def test_images_and_sequences_are_no_tables():
    for shape in ((3, 8, 8), (5, 3)):
        with pytest.raises(ConfigError, match="tabular needs the rows of a table"):
            build_representation(
                "tabular", input_shape=shape, representation_dim=4, hidden=(), options={}
            )


def test_a_head_with_dropout():
    plain = build_fusion("mlp", representation_dim=8, num_outputs=2, options={})
    head = build_fusion("mlp", representation_dim=8, num_outputs=2, options={"dropout": 0.4})
    assert [type(part).__name__ for part in plain] == ["Linear", "ReLU", "Linear"]
    assert [type(part).__name__ for part in head] == ["Linear", "ReLU", "Dropout", "Linear"]
    assert head[2].p == 0.4
    with pytest.raises(ConfigError, match="option dropout: expected a number from 0"):
        build_fusion("mlp", representation_dim=8, num_outputs=2, options={"dropout": -0.1})
