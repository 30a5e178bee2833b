"""The private functions of torch that virtual devices need, in one place.

They exist in torch 2.11 to 2.13. `missing` tells which ones another version lacks.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import torch
import torch.utils.checkpoint

NAMES: Final = (
    "_C._nn._parse_to",
    "autograd.graph._engine_run_backward",
    "autograd._engine_run_backward",
    "cuda._lazy_init",
    "_tensor_str._str",
    "utils.checkpoint._allowed_determinism_checks_to_fns",
)
"""Names below `torch`."""


def missing() -> tuple[str, ...]:
    """Those of NAMES that this version of torch does not have."""
    return tuple(f"torch.{name}" for name in NAMES if _get(name) is None)


def _get(name: str) -> Any:
    return reduce(lambda owner, part: getattr(owner, part, None), name.split("."), torch)


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, non_blocking and memory format from the arguments of `Tensor.to`, without `copy`."""
    parsed: tuple[Any, Any, bool, Any] = torch._C._nn._parse_to(*args, **kwargs)
    return parsed


def tensor_text(tensor: torch.Tensor, contents: Any = None) -> str:
    """What `repr` shows; unlike `Tensor.__repr__` it is not given to a torch function mode."""
    text: str = torch._tensor_str._str(tensor, tensor_contents=contents)
    return text
