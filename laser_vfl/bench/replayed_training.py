"""A run that daemons have done, done again in one process: how good it was after each few steps.

It is the same run to the last bit, which is checked at its end. So the daemons need not stop to be
scored, and nothing is timed but training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.model_building import build_learner
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import Block, EncodedTable, load_block
from laser_vfl.config.loading import load_config
from laser_vfl.core.alignment import ClientAlignment, align_rows
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.evaluation.metrics import score
from laser_vfl.core.evaluation.subset_scores import decide
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.subsets import clients_in, mask_of
from laser_vfl.core.training.learner import Learner
from laser_vfl.data import read_secret
from laser_vfl.methods.training_settings import TrainingSettings

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ReplayedTraining:
    """A federation of classifiers in this process, all with labels and aligned by hmac."""

    configs: Sequence[ClientConfig]
    blocks: Sequence[Block]
    learners: Sequence[Learner]
    alignments: Sequence[ClientAlignment]
    oracle: Oracle

    @classmethod
    def of(
        cls, directory: Path, names: Sequence[str], settings: TrainingSettings
    ) -> "ReplayedTraining":
        """Build it from the configurations that the clients were started with."""
        configs = [load_config(directory / f"{name}.yaml", ClientConfig) for name in names]
        blocks = [load_block(config, _secret(config)) for config in configs]
        alignments = align_rows([block.train.digests for block in blocks])
        learners = [
            build_learner(
                config, block, settings, names, names, torch.device("cpu"), alignment=alignment
            )
            for config, block, alignment in zip(configs, blocks, alignments, strict=True)
        ]
        members = {
            k: Member(
                learner,
                alignments[k],
                blocks[k].train.inputs,
                blocks[k].train.targets,
                blocks[k].train.label_weights,
            )
            for k, learner in enumerate(learners)
        }
        return cls(configs, blocks, learners, alignments, Oracle(members, settings))

    def scores(self, every: int) -> Iterator[tuple[int, float]]:
        """Train; yield the accuracy on the test tables whenever so many steps were applied."""
        oracle, everyone = self.oracle, mask_of(range(len(self.learners)))
        tests = align_rows([_test(block).digests for block in self.blocks])
        scored = 0
        for number in range(oracle.num_steps):
            oracle.step(number, everyone)
            if number + 1 == oracle.num_steps:
                oracle.settle()
                applied = oracle.num_steps
            else:
                applied = oracle.timeline.applied_before(number + 1)
            if applied // every > scored // every or applied == oracle.num_steps:
                scored = applied
                yield applied, self._accuracy(tests)

    def check(self) -> None:
        """Raise unless what the daemons have learnt is the same, to the last bit."""
        for config, learner in zip(self.configs, self.learners, strict=True):
            state = StateDirectory(config.state)
            _, found = state.read_model(state.published_run or "")
            expected = learner.published.state_dict()
            if found.keys() != expected.keys() or not all(
                torch.equal(found[key], expected[key]) for key in expected
            ):
                raise TrainingStopped(
                    f"the model of {config.name} is not what the same run gives in one process, "
                    "so it is not known when the score was reached",
                    hint="see whether a client was lost in between, and measure again",
                )

    def _accuracy(self, tests: Sequence[ClientAlignment]) -> float:
        """Return the accuracy of each client on the samples that it holds; the mean of these."""
        shown = [
            learner.embed(_test(block).inputs).numpy()
            for learner, block in zip(self.learners, self.blocks, strict=True)
        ]
        found = []
        for k, learner in enumerate(self.learners):
            answers = {
                j: rows
                for j in range(len(shown))
                if j != k and (rows := _shared(tests, k, j, shown))
            }
            method, targets = learner.method, _test(self.blocks[k]).targets
            assert targets is not None
            fused_nd, _ = method.prediction.fuse(shown[k], answers, learner.context)
            with learner.evaluating():
                outputs_no = method.prediction.answers(
                    learner.models["fusion"], torch.from_numpy(fused_nd), learner.task
                )
            decided = decide(learner.task, outputs_no.float()).double().numpy()
            accuracy = score(learner.task, decided, targets.double().numpy())["accuracy"]
            assert accuracy is not None
            found.append(accuracy)
        return float(np.mean(found))


def _secret(config: ClientConfig) -> bytes:
    assert config.id_secret_file is not None
    return read_secret(config.id_secret_file)


def _test(block: Block) -> EncodedTable:
    assert block.test is not None
    return block.test


def _shared(
    tests: Sequence[ClientAlignment], mine: int, other: int, shown: Sequence[Rows]
) -> tuple[npt.NDArray[np.int64], Rows] | None:
    """Return which rows of a client's table another holds too, and what that one shows."""
    groups = [
        g
        for g, group in enumerate(tests[mine].groups)
        if {mine, other} <= set(clients_in(group.observed))
    ]
    if not groups:
        return None
    rows = np.concatenate([tests[mine].rows[g] for g in groups])
    theirs = np.concatenate([tests[other].rows[g] for g in groups])
    return rows, shown[other][theirs]
