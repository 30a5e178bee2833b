"""Runs torch.compile on virtual devices: Dynamo traces functions, and torch executes their graphs as they are.

Dynamo finds graph breaks, and reasons to compile again, while it traces. It traces with tensors without values, which
this module marks with the devices that the program sees, so that code that asks for a device takes the same way as on a
GPU. It does not see our mode, which gets the functions of a graph when the graph runs. Where Dynamo fails, the function
runs as the program wrote it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch

from profiler.exact import private_api
from profiler.exact.marks import Machine, device_of
from profiler.exact.mode import VirtualMode

_HERE: Final = Path(__file__).parent.as_posix() + "/"
_REPLACED: Final = frozenset({"backend", "mode", "options", "fullgraph"})
"""Options of torch.compile that do not apply: they choose a backend, or forbid graph breaks, which are counted."""


def compile_replacement(mode: VirtualMode, undos: list[Callable[[], object]]) -> Callable[..., Any]:
    """A function in the place of torch.compile, which changes Dynamo when it is first called.

    :param undos: gets functions that take back the changes.
    """
    original = torch.compile
    can_compile: bool | None = None

    def compile_for_virtual_devices(model: Any = None, **options: Any) -> Any:
        nonlocal can_compile
        if model is None:
            return lambda function: compile_for_virtual_devices(function, **options)
        if can_compile is None:
            if absent := private_api.missing(private_api.COMPILER_NAMES):
                warnings.warn(
                    f"torch.compile compiles nothing on virtual CUDA devices with torch {torch.__version__}, "
                    f"which has no {absent[0]}. Functions run as they are written.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                _change_dynamo(mode, undos)
            can_compile = not absent
        if not can_compile:
            return model
        kept = {name: value for name, value in options.items() if name not in _REPLACED}
        return original(model, backend="eager", **kept)

    return compile_for_virtual_devices


def _change_dynamo(mode: VirtualMode, undos: list[Callable[[], object]]) -> None:
    from torch._dynamo import config, trace_rules, utils
    from torch._dynamo.variables import TensorVariable, torch_function
    from torch._subclasses.fake_tensor import FakeTensorMode

    state = torch_function.SymbolicTorchFunctionState
    tracing = _tracing_mode(mode.machine)
    initialize, run, from_real = state.__init__, utils.run_node, FakeTensorMode.from_tensor
    specialize = TensorVariable.specialize

    def without_our_mode(self: Any, modes: Iterable[Any], *args: Any, **kwargs: Any) -> None:
        initialize(self, [each for each in modes if each is not mode], *args, **kwargs)

    def run_with_devices(*args: Any, **kwargs: Any) -> Any:
        tracing.default_device = mode.default_device
        with tracing:
            return run(*args, **kwargs)

    def from_tensor(self: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result, device = from_real(self, tensor, *args, **kwargs), device_of(tensor)
        if device is not None:
            tracing.mark(result, device)
        return result

    def with_device(value: torch.Tensor) -> dict[str, Any]:
        properties = specialize(value)
        return {**properties, "device": device_of(value) or properties["device"]}

    def replace(owner: Any, name: str, value: Any) -> None:
        before = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
        undos.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    replace(state, "__init__", without_our_mode)
    replace(utils, "run_node", run_with_devices)
    replace(FakeTensorMode, "from_tensor", from_tensor)
    replace(TensorVariable, "specialize", staticmethod(with_device))
    replace(config, "suppress_errors", True)
    if hasattr(config, "fail_on_recompile_limit_hit"):  # torch refuses it together with suppress_errors
        replace(config, "fail_on_recompile_limit_hit", False)
    trace_rules.SKIP_DIRS.append(_HERE)  # between graphs our mode runs, which Dynamo would compile
    trace_rules._recompile_re()

    def compile_our_mode() -> None:
        trace_rules.SKIP_DIRS.remove(_HERE)
        trace_rules._recompile_re()

    undos.append(compile_our_mode)


def _tracing_mode(machine: Machine) -> VirtualMode:
    """A mode for tensors without values, which use no memory and whose copies and waits do not count."""
    own = Machine(len(machine.devices), machine.card, lambda *_: None)
    own.share_current_device(machine)
    return VirtualMode(own)
