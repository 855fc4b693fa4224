"""The oracle of a federation, built from the very files that its daemons were started with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.model_building import build_learner
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import Block, EncodedTable, load_block
from laser_vfl.client.tables.table_listing import shuffled
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.alignment import ClientAlignment, align, align_rows, listing_order
from laser_vfl.core.evaluation.subset_scores import Evaluation, orders_to_score, scored_subsets
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.core.randomness import RandomStream
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.schedule.schedule import Schedule, in_order
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.gradients import Thresholds, columns_at, columns_spread, crossing
from laser_vfl.core.training.learner import Learner
from laser_vfl.core.training.row_rounding import RowRounding
from laser_vfl.data import read_secret
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.models.bfloat16 import avoid_broken_instructions


@dataclass(frozen=True)
class SingleProcess:
    """Everything of a federation in this process."""

    names: tuple[str, ...]
    settings: TrainingSettings
    blocks: Sequence[Block]
    keys: Sequence[bytes] | None
    """By which each client orders its lists; None if all order them by digest."""
    learners: Sequence[Learner]
    alignments: Sequence[ClientAlignment]
    oracle: Oracle
    heads: int

    @property
    def num_rows_by_step(self) -> list[dict[int, int]]:
        """How many rows each client has in each step that concerns it."""
        settings = self.settings
        schedule = Schedule(
            self.alignments[0].groups,
            seed=settings.seed,
            batch_size=settings.batch_size,
            batching=settings.batching,
        )
        everyone = mask_of(range(len(self.names)))
        steps = []
        for number in range(self.oracle.num_steps):
            step = schedule.step(number)
            plans = {
                k: learner.plan(step, self.alignments[k], everyone)
                for k, learner in enumerate(self.learners)
            }
            steps.append({k: len(plan.rows) for k, plan in plans.items() if plan})
        return steps

    @property
    def learning(self) -> set[str]:
        """Who has a step that concerns it."""
        return {self.names[k] for step in self.num_rows_by_step for k in step}

    def parameters(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            name: learner.published.state_dict()
            for name, learner in zip(self.names, self.learners, strict=True)
        }

    def scores(self, client: int) -> dict[str, Any]:
        """What scores.json of a client should hold, from everybody's models."""
        tables = [block.test for block in self.blocks]
        alignments = _align([table.digests if table else None for table in tables], self.keys)
        block, table = self.blocks[client], tables[client]
        assert block.labels is not None
        assert table is not None
        assert table.targets is not None
        assert table.labelled is not None
        learner = self.learners[client]
        orders = orders_to_score(learner.context, alignments[client].groups)
        evaluation = Evaluation(
            learner,
            scored_subsets(learner, alignments[client].groups),
            table.targets.double().numpy(),
            table.labelled,
            target_std=block.labels.std if block.labels.task == "regression" else 1.0,
        )
        everyone = mask_of(range(len(self.names)))
        groups = alignments[client].groups
        for step in in_order(groups, self.settings.batch_size):
            plans = {
                k: learner.plan(step, alignments[k], everyone, predicts=True)
                for k, learner in enumerate(self.learners)
            }
            plan = plans[client]
            if plan is None:
                continue
            shown = {
                k: self._shown(other, tables[k], client)
                for k, other in plans.items()
                if other is not None and k in plan.blocks
            }
            stack_bpd = torch.zeros(len(plan.rows), len(plan.blocks), shown[client].shape[1])
            row_of = {place: i for i, place in enumerate(_places(plan, alignments[client]))}
            for k, rows_bd in shown.items():
                for place, row_d in zip(_places(plans[k], alignments[k]), rows_bd, strict=True):
                    if place in row_of:
                        stack_bpd[row_of[place], plan.blocks.index(k)] = row_d
            evaluation.add(plan, stack_bpd)
        left_out = sum(g.size for g in groups if not g.observed & self.heads)
        return {
            **evaluation.scores(self.names),
            "num_samples_without_head": left_out,
            "orders": [[self.names[k] for k in order] for order in orders],
        }

    def _shown(self, plan: Plan, table: EncodedTable | None, to: int) -> torch.Tensor:
        """What a head sees of a client's representations of the test rows in a plan."""
        assert table is not None
        learner, head = self.learners[plan.client], self.learners[to]
        rows_bd = learner.embed(table.inputs[torch.from_numpy(plan.rows)])
        if plan.client == to:
            return rows_bd
        rows_bd = learner.released(rows_bd, Phase.EVALUATION, plan.step)
        thresholds = None
        if self.settings.rounds_rows:
            rounding = RowRounding(self.settings.seed, plan.step)
            stream = RandomStream.ROUNDED_EVALUATION
            there_bd = rounding.thresholds(plan.client, stream, *rows_bd.shape)
            thresholds = Thresholds(columns_at(there_bd, learner.columns(to)))
        rows_bc = crossing(
            columns_at(rows_bd, learner.columns(to)),
            self.settings.wire_precision,
            thresholds=thresholds,
        )
        return columns_spread(rows_bc, head.columns(plan.client), rows_bd.shape[1])


def _align(
    tables: Sequence[npt.NDArray[np.uint8] | None], keys: Sequence[bytes] | None
) -> list[ClientAlignment]:
    """Align as the daemons do: each client lists its people in an order of its own."""
    if keys is None:
        return align_rows(tables)
    orders = [
        None if table is None else listing_order(shuffled(table, key))
        for table, key in zip(tables, keys, strict=True)
    ]
    lists = [
        None if table is None or order is None else table[order]
        for table, order in zip(tables, orders, strict=True)
    ]
    return [
        ClientAlignment(told.groups, {g: order[rows] for g, rows in told.rows.items()})
        if order is not None
        else told
        for told, order in zip(align(lists), orders, strict=True)
    ]


def _places(plan: Plan | None, alignment: ClientAlignment) -> list[tuple[int, int]]:
    """The group and the place in it of each row of a plan."""
    assert plan is not None
    place_of = {
        int(row): (group, place)
        for group, rows in alignment.rows.items()
        for place, row in enumerate(rows)
    }
    return [place_of[int(row)] for row in plan.rows]


def single_process(directory: Path) -> SingleProcess:
    """Build the oracle from coordinator.yaml and the clients' files next to it."""
    coordinator = load_config(directory / "coordinator.yaml", CoordinatorConfig)
    names = tuple(coordinator.clients)
    configs = [load_config(directory / f"{name}.yaml", ClientConfig) for name in names]
    if any(config.precision == "bfloat16" for config in configs):
        avoid_broken_instructions()
    own_keys = [StateDirectory(config.state).own_key() for config in configs]
    blocks = [
        load_block(config, read_secret(config.id_secret_file), own_key=own_key)
        for config, own_key in zip(configs, own_keys, strict=True)
    ]
    heads = [name for name, block in zip(names, blocks, strict=True) if block.labels]
    keys = own_keys if coordinator.alignment == "ecdh" else None
    alignments = _align([block.train.digests for block in blocks], keys)
    cpu = torch.device("cpu")
    learners = [
        build_learner(
            config,
            block,
            coordinator.training,
            names,
            heads,
            cpu,
            alignment=alignment,
            own_key=own_key,
        )
        for config, block, alignment, own_key in zip(
            configs, blocks, alignments, own_keys, strict=True
        )
    ]
    members = {
        k: Member(
            learners[k],
            alignments[k],
            block.train.inputs,
            block.train.targets,
            block.train.label_weights,
        )
        for k, block in enumerate(blocks)
    }
    return SingleProcess(
        names,
        coordinator.training,
        blocks,
        keys,
        learners,
        alignments,
        Oracle(members, coordinator.training),
        learners[0].context.heads,
    )
