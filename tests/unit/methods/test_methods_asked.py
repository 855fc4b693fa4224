"""A served model answers those members that predict with its block, and nobody else."""

from types import SimpleNamespace

import pytest

from laser_vfl.client.serving.models.published_model import PublishedModel, context_of
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings

ROSTER = ("bank", "shop", "telco")
NAMES = ("laser", "local", "standard", "ensemble", "combinatorial", "plug")
BOTH = {("bank", "shop"), ("shop", "bank")}
ANSWERED = {
    "laser": BOTH | {("telco", "bank"), ("telco", "shop")},
    "local": set(),
    "standard": {("shop", "bank"), ("telco", "bank")},
    "ensemble": BOTH,
    "combinatorial": BOTH | {("telco", "bank"), ("telco", "shop")},
    "plug": {("shop", "bank"), ("telco", "bank")},
}
"""Who answers whom, when telco has no labels."""


def served(name: str, me: str) -> SimpleNamespace:
    settings = TrainingSettings(method=name, representation_dim=8, batch_size=4, epochs=1)
    heads = ROSTER[: 1 if name in ("standard", "plug") else 2]
    return SimpleNamespace(
        roster=ROSTER,
        heads=heads,
        settings=settings,
        me=ROSTER.index(me),
        method=method_named(name),
        context=context_of(ROSTER.index(me), ROSTER, heads, settings),
    )


@pytest.mark.parametrize("name", NAMES)
def test_who_answers_whom(name):
    answered = {
        (asked, asker)
        for asked in ROSTER
        for asker in ROSTER
        if asked != asker and PublishedModel.is_asked_by(served(name, asked), asker)
    }
    assert answered == ANSWERED[name]


@pytest.mark.parametrize("name", NAMES)
def test_without_certificates_a_name_says_nothing(name):
    assert PublishedModel.is_asked_by(served(name, "bank"), "anyone") == (name != "local")
