"""The oracle of a federation, built from the very files that its daemons were started with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import Block, build_learner, load_block
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.listing import shuffled
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.alignment import ClientAlignment, align, align_rows, listing_order
from laser_vfl.core.evaluation import Evaluation, orders_to_score, subsets_to_score
from laser_vfl.core.exchange import crossing
from laser_vfl.core.learner import Learner
from laser_vfl.core.noise import Phase
from laser_vfl.core.oracle import Member, Oracle
from laser_vfl.core.plan import plan_step
from laser_vfl.core.schedule import Schedule, in_order
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.subsets import mask_of
from laser_vfl.data import read_secret
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
            plans = {
                k: plan_step(
                    schedule.step(number),
                    alignment,
                    client=k,
                    participants=everyone,
                    heads=self.heads,
                )
                for k, alignment in enumerate(self.alignments)
            }
            steps.append({k: len(p.rows) for k, p in plans.items() if p and p.learns})
        return steps

    def parameters(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            name: learner.models.state_dict()
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
        orders = orders_to_score(self.learners[client].place, alignments[client].groups)
        evaluation = Evaluation(
            self.learners[client],
            subsets_to_score(client, alignments[client].groups, orders),
            table.targets.double().numpy(),
            table.labelled,
            target_std=block.labels.std if block.labels.task == "regression" else 1.0,
        )
        everyone = mask_of(range(len(self.names)))
        groups = alignments[client].groups
        for step in in_order(groups, self.settings.batch_size):
            plans = {
                k: plan_step(step, alignments[k], client=k, participants=everyone, heads=self.heads)
                for k in range(len(self.names))
            }
            plan = plans[client]
            if plan is None:
                continue
            stack_bpd = torch.zeros(
                len(plan.rows), len(plan.blocks), self.settings.representation_dim
            )
            row_of = {(g, int(p)): i for i, (g, p) in enumerate(_places(step, groups, client))}
            for column, k in enumerate(plan.blocks):
                other, inputs = plans[k], tables[k]
                assert other is not None
                assert inputs is not None
                learner = self.learners[k]
                rows_bd = learner.embed(inputs.inputs[torch.from_numpy(other.rows)])
                if k != client:
                    rows_bd = learner.released(rows_bd, Phase.EVALUATION, step.number)
                    rows_bd = crossing(rows_bd, self.settings.wire_precision)
                for i, place in enumerate(_places(step, groups, k)):
                    if place in row_of:
                        stack_bpd[row_of[place], column] = rows_bd[i]
            evaluation.add(plan, stack_bpd)
        left_out = sum(g.size for g in groups if not g.observed & self.heads)
        return {
            **evaluation.scores(self.names),
            "num_samples_without_head": left_out,
            "orders": [[self.names[k] for k in order] for order in orders],
        }


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


def _places(step: Any, groups: Sequence[Any], client: int) -> list[tuple[int, int]]:
    return [
        (segment.group, int(place))
        for segment in step.segments
        if groups[segment.group].observed >> client & 1
        for place in segment.places
    ]


def single_process(directory: Path) -> SingleProcess:
    """Build the oracle from coordinator.yaml and the clients' files next to it."""
    coordinator = load_config(directory / "coordinator.yaml", CoordinatorConfig)
    names = tuple(coordinator.clients)
    configs = [load_config(directory / f"{name}.yaml", ClientConfig) for name in names]
    if any(config.precision == "bfloat16" for config in configs):
        avoid_broken_instructions()
    blocks = [load_block(config, read_secret(config.id_secret_file)) for config in configs]
    heads = [name for name, block in zip(names, blocks, strict=True) if block.labels]
    own_keys = [StateDirectory(config.state).own_key() for config in configs]
    keys = own_keys if coordinator.alignment == "ecdh" else None
    alignments = _align([block.train.digests for block in blocks], keys)
    cpu = torch.device("cpu")
    learners = [
        build_learner(config, block, coordinator.training, names, heads, cpu, own_key=own_key)
        for config, block, own_key in zip(configs, blocks, own_keys, strict=True)
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
        mask_of(names.index(name) for name in heads),
    )
