"""Rows of a table in memory, and as models take them."""

import copy

import pytest
import torch
from torch import nn

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.table_form import TableForm
from laser_vfl.core.table_rows import TableBatch, flat_rows, reads_block, split_rows
from laser_vfl.models import build_representation, check_representation

FORM = TableForm((0, 3, 0, 2))
ROWS = torch.tensor([[0.5, -1.0, 2, 0], [1.5, 2.0, 0, 1]])
FLAT = [[0.5, 0, 0, 1, -1.0, 1, 0], [1.5, 1, 0, 0, 2.0, 0, 1]]


class Apart(nn.Module):
    """A model that takes numbers and codes apart."""

    takes_table = True

    def __init__(self, form: TableForm) -> None:
        super().__init__()
        self.numbers = nn.Linear(form.num_numbers, 4)
        self.categories = nn.ModuleList(nn.Embedding(n, 4) for n in form.cardinalities)
        self.seen: list[TableBatch] = []

    def forward(self, batch: TableBatch) -> torch.Tensor:
        self.seen.append(batch)
        embedded = [part(batch.codes[:, at]) for at, part in enumerate(self.categories)]
        return self.numbers(batch.numbers) + sum(embedded)


def test_what_a_form_counts():
    assert (FORM.num_numbers, FORM.cardinalities, FORM.width, FORM.flat_width) == (2, (3, 2), 4, 7)
    assert TableForm.of_numbers(3) == TableForm((0, 0, 0))


def test_numbers_and_codes_come_apart():
    batch = split_rows(ROWS, FORM)
    assert len(batch) == 2
    assert batch.numbers.tolist() == [[0.5, -1.0], [1.5, 2.0]]
    assert (batch.codes.dtype, batch.codes.tolist()) == (torch.int64, [[2, 0], [0, 1]])


def test_flat_rows_are_in_the_order_of_the_table():
    flat = flat_rows(ROWS, FORM)
    assert (flat.dtype, flat.tolist()) == (torch.float32, FLAT)
    assert flat_rows(ROWS, TableForm.of_numbers(4)) is ROWS
    assert flat_rows(ROWS, None) is ROWS
    assert flat_rows(ROWS[:0], FORM).shape == (0, 7)


def test_tables_of_one_kind_alone():
    codes = torch.tensor([[1.0, 0.0]])
    assert flat_rows(codes, TableForm((2, 3))).tolist() == [[0, 1, 1, 0, 0]]
    batch = split_rows(codes, TableForm.of_numbers(2))
    assert (batch.numbers.shape, batch.codes.shape) == ((1, 2), (1, 0))


def test_the_largest_code_is_exact():
    code = 2**20 - 1
    batch = split_rows(torch.tensor([[float(code)]]), TableForm((2**20,)))
    assert batch.codes.item() == code


def test_a_flat_model_has_the_parameters_that_it_had_before():
    before = build_representation(
        "mlp", input_shape=(7,), representation_dim=2, hidden=[5], options={}
    )
    model = build_representation(
        "mlp", input_shape=(7,), representation_dim=2, hidden=[5], options={}, form=FORM
    )
    assert list(model.state_dict()) == list(before.state_dict())
    model.load_state_dict(before.state_dict())
    for each in (model, copy.deepcopy(model)):
        assert torch.equal(each(ROWS), before(torch.tensor(FLAT)))
    check_representation(model, (FORM.width,), 2)


def apart(*, input_shape, representation_dim, form):
    assert (input_shape, representation_dim) == ((form.flat_width,), 4)
    return Apart(form)


def test_a_factory_that_takes_the_form_gets_a_split_batch():
    name = f"{__name__}:apart"
    keys = {"representation_dim": 4, "hidden": [], "options": {}}
    model = build_representation(name, input_shape=(7,), form=FORM, **keys)
    assert model(ROWS).shape == (2, 4)
    assert model.seen[-1].codes.tolist() == [[2, 0], [0, 1]]
    of_numbers = build_representation(name, input_shape=(3,), **keys)
    assert of_numbers(torch.zeros(2, 3)).shape == (2, 4)
    with pytest.raises(ConfigError, match='"form" cannot be an option'):
        build_representation(name, input_shape=(7,), form=FORM, **{**keys, "options": {"form": 1}})


def test_a_model_given_in_python_reads_the_block_too():
    linear = reads_block(nn.Linear(7, 1), FORM)
    assert linear(ROWS).shape == (2, 1)
    assert reads_block(Apart(FORM), FORM)(ROWS).shape == (2, 4)
    assert reads_block(nn.Flatten(), None)(torch.zeros(2, 3, 4)).shape == (2, 12)
