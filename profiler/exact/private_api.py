"""Names the private functions of torch that virtual devices need, in one place.

They exist in torch 2.11 to 2.13. `missing` tells which ones another version lacks.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.utils._device
import torch.utils._python_dispatch
import torch.utils.checkpoint
import torch.utils.flop_counter

NAMES: Final = (
    "_C._nn._parse_to",
    "_C._group_tensors_by_device_and_dtype",
    "autograd.graph._engine_run_backward",
    "autograd._engine_run_backward",
    "cuda._lazy_init",
    "_tensor_str._str",
    "overrides._get_current_function_mode_stack",
    "distributed.distributed_c10d._get_object_coll_device",
    "utils._device._device_constructors",
    "_C._functorch.get_unwrapped",
    "_C._functorch.is_functorch_wrapped_tensor",
    "_VF._pack_padded_sequence",
    "utils.checkpoint._allowed_determinism_checks_to_fns",
    "_C._is_torch_function_mode_enabled",
    "_C.DisableTorchFunction",
    "utils._python_dispatch.TorchDispatchMode",
)
"""Names below `torch` that virtual devices need."""
COMPILER_NAMES: Final = (
    "_dynamo.config.suppress_errors",
    "_dynamo.trace_rules.SKIP_DIRS",
    "_dynamo.trace_rules._recompile_re",
    "_dynamo.utils.run_node",
    "_dynamo.variables.TensorVariable.specialize",
    "_dynamo.variables.torch_function.SymbolicTorchFunctionState",
    "_subclasses.fake_tensor.FakeTensorMode.from_tensor",
)
"""Names that torch.compile on virtual devices needs."""
COUNTING_NAMES: Final = (
    "autograd.graph._engine_run_backward",
    "_C._autograd._get_sequence_nr",
    "_C._current_autograd_node",
    "_C._is_torch_function_mode_enabled",
    "_C.DisableTorchFunction",
    "_ops.OpOverload",
    "utils._python_dispatch.TorchDispatchMode",
    "utils._python_dispatch._get_current_dispatch_mode_stack",
    "utils.flop_counter.flop_registry",
    "overrides._pop_mode_temporarily",
    "_C.PyTorchFileWriter",
)
"""Names that counting operators and files need."""


def require(names: tuple[str, ...], what: str) -> None:
    """Check that torch has what a part of the profiler needs, before that part is imported.

    :raises RuntimeError: this version of torch lacks one of the names.
    """
    if absent := missing(names):
        raise RuntimeError(f"{what} does not work with torch {torch.__version__}: it has no {absent[0]}")


def missing(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the names that this version of torch does not have."""
    return tuple(f"torch.{name}" for name in names if _get(name) is None)


def _get(name: str) -> Any:
    owner: Any = torch
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, non_blocking and memory format from the arguments of `Tensor.to`, without `copy`."""
    parsed: tuple[Any, Any, bool, Any] = torch._C._nn._parse_to(*args, **kwargs)
    return parsed


def tensor_text(tensor: torch.Tensor, contents: Any = None) -> str:
    """Return what `repr` shows; unlike `Tensor.__repr__` it is not given to a torch function mode."""
    show: Any = torch._tensor_str._str
    text: str = show(tensor, tensor_contents=contents)
    return text


def active_modes() -> list[Any]:
    """Return the torch function modes of this thread, the outermost first."""
    stack: Any = torch.overrides._get_current_function_mode_stack
    return list(stack())


def checkpoint_checks() -> dict[str, Any]:
    """Tell how checkpoints compare the tensors of both forward passes, by name: functions of a tensor."""
    checks: dict[str, Any] = torch.utils.checkpoint._allowed_determinism_checks_to_fns
    return checks


def constructors() -> set[Any]:
    """Return the functions that make tensors on the default device."""
    functions: Any = torch.utils._device._device_constructors
    return set(functions())


def group_tensors() -> Any:
    """Return torch's function that groups tensors by device and dtype."""
    return torch._C._group_tensors_by_device_and_dtype


_is_wrapped: Final = _get("_C._functorch.is_functorch_wrapped_tensor")


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor within a wrapper of torch.func, or this process's part of a DTensor; other tensors
    themselves."""
    if _is_wrapped(tensor):
        inner: torch.Tensor = torch._C._functorch.get_unwrapped(tensor)
        return inner
    return tensor if type(tensor) is torch.Tensor else getattr(tensor, "_local_tensor", tensor)


# ---------------------------------------------------------------- for counting operators

ENGINE_CODE: Final = getattr(_get("autograd.graph._engine_run_backward"), "__code__", None)
"""The code of torch's function that calls the autograd engine."""
ENGINE_FILE: Final[str] = getattr(ENGINE_CODE, "co_filename", "")
gradient_functions_made: Final = _get("_C._autograd._get_sequence_nr")
"""How many gradient functions this thread has made: they are numbered from 0."""
gradient_function: Final = _get("_C._current_autograd_node")
"""The gradient function that the autograd engine executes in this thread; None within a callback."""
has_function_modes: Final = _get("_C._is_torch_function_mode_enabled")
"""Whether a torch function mode is active in this thread."""

without_function_modes: Final = _get("_C.DisableTorchFunction")
"""A context manager in which this thread's torch functions are given to no mode."""


def dispatch_modes() -> list[Any]:
    """Return the torch dispatch modes of this thread, the outermost first."""
    stack: Any = torch.utils._python_dispatch._get_current_dispatch_mode_stack
    return list(stack())


def binding(operator: Any) -> Any:
    """Return the function of C++ that an operator's object calls, which takes half the time; others themselves."""
    return operator._op if type(operator) is torch._ops.OpOverload else operator


OPENS_FOR_WRITER: Final = "_open_zipfile_writer_file.__init__"
"""The function of torch 2.11 that opens a file by `io.FileIO` for torch's writer, if its name has other letters than
those of ASCII."""


def file_writer() -> tuple[Any, str]:
    """Return the module that has torch's class that writes files, as for torch.save, and the name of the class."""
    return torch._C, "PyTorchFileWriter"


def flop_formulas() -> dict[Any, Any]:
    """Return torch's formulas for floating-point operations, by operator."""
    formulas: dict[Any, Any] = torch.utils.flop_counter.flop_registry
    return formulas


def without_innermost_mode() -> Any:
    """Return a context manager in which the innermost torch function mode of this thread is not active."""
    leave: Any = torch.overrides._pop_mode_temporarily
    return leave()
