"""torch's optimisers without its compiler, which each of them imports on first use.

That import takes a second and 70 MB, and nothing here is compiled.
"""

import inspect
from functools import cache
from typing import Any

import torch

_WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")


@cache
def without_compiler(kind: type[torch.optim.Optimizer]) -> Any:
    """Return a class that computes the same, free of what tells the compiler to stay out."""
    plain = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    plain["step"] = torch.no_grad()(plain["step"])
    plain["step"].hooked = True  # or torch wraps it in what notes each step for its profiler
    return type(kind.__name__, (kind,), plain)
