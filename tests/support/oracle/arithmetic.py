"""A fingerprint of arithmetic: machines with the same one train to the same last bits.

The version of torch and the kind of CPU do not tell: libraries choose their kernels by more than
that. Imports nothing of the project, so that the python of another environment can run this file:

    PYTHON tests/support/oracle/arithmetic.py
"""

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional

WIDTHS = range(3, 9)
ROWS = range(1, 49)
LARGER = [(64, 12, 6), (100, 16, 4), (192, 6, 3), (240, 3, 6), (256, 64, 32), (512, 128, 64)]
"""Rows, inputs and outputs beyond those."""


def fingerprint() -> str:
    """SHA-256 of what small layers give on fixed inputs: forwards, backwards and a step of Adam.

    All are computed with one thread, which stays set.
    """
    torch.set_num_threads(1)
    sizes = [(rows, wide, out) for rows in ROWS for wide in WIDTHS for out in WIDTHS]
    digest = hashlib.sha256()
    for size in (*sizes, *LARGER):
        for result in _results(*size):
            digest.update(result.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _results(rows: int, wide: int, out: int) -> Iterator[torch.Tensor]:
    """Compute with one layer whose weights and inputs depend on nothing but its size."""
    bits = np.random.Philox(key=(rows << 32) + (wide << 16) + out)
    inputs_ni = _numbers(bits, rows, wide)
    weights_oi, biases_o = _numbers(bits, out, wide), _numbers(bits, out)
    targets_n = torch.arange(rows) % out
    optimizer = torch.optim.Adam([weights_oi, biases_o], lr=0.01)
    outputs_no = functional.linear(inputs_ni, weights_oi, biases_o)
    hidden_no = functional.relu(outputs_no)
    several = functional.cross_entropy(outputs_no, targets_n, reduction="none")
    binary = functional.binary_cross_entropy_with_logits(
        hidden_no[:, 0], (targets_n == 0).float(), reduction="none"
    )
    loss = several.sum() + binary.mean() + hidden_no.mean(dim=0).square().sum()
    loss.backward()
    yield from (outputs_no, outputs_no.softmax(dim=1), outputs_no.sigmoid(), several, binary, loss)
    for leaf in (inputs_ni, weights_oi, biases_o):
        assert leaf.grad is not None
        yield leaf.grad
    optimizer.step()
    yield from (weights_oi, biases_o)


def _numbers(bits: np.random.Philox, *shape: int) -> torch.Tensor:
    """Return numbers in [-1, 1) that float32 has exactly, whatever the version of numpy."""
    words = bits.random_raw(int(np.prod(shape))).reshape(shape)
    exact = (words >> np.uint64(40)).astype(np.float64) / 2**23 - 1
    return torch.tensor(exact, dtype=torch.float32, requires_grad=True)


if __name__ == "__main__":
    print(fingerprint())
