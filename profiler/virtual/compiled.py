"""torch.compile on virtual devices: Dynamo traces functions, and torch executes their graphs as they are.

Dynamo finds graph breaks, and reasons to compile again, while it traces. It traces with tensors without values, which
this module marks with the devices that the program sees, so that code that asks for a device takes the same way as on a
GPU. It does not see our mode, which gets the functions of a graph when the graph runs. Where Dynamo fails, the function
runs as the program wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch

from profiler.virtual import private_api
from profiler.virtual.tensors import Machine, VirtualMode, device_of

_HERE: Final = Path(__file__).parent.as_posix() + "/"


def compile_replacement(mode: VirtualMode, undos: list[Callable[[], object]]) -> Callable[..., Any]:
    """A function in the place of torch.compile, which changes Dynamo when it is first called.

    :param undos: gets functions that take back the changes.
    """
    original = torch.compile
    is_prepared = False

    def compile_for_virtual_devices(model: Any = None, **options: Any) -> Any:
        nonlocal is_prepared
        if model is None:
            return lambda function: compile_for_virtual_devices(function, **options)
        if not is_prepared:
            is_prepared = True
            private_api.require(private_api.COMPILER_NAMES, "torch.compile on virtual CUDA devices")
            _change_dynamo(mode, undos)
        return original(model, backend="eager", dynamic=options.get("dynamic"))

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
    if _HERE not in trace_rules.SKIP_DIRS:
        trace_rules.SKIP_DIRS.append(_HERE)  # between graphs our mode runs, which Dynamo would compile
        trace_rules._recompile_re()


def _tracing_mode(machine: Machine) -> VirtualMode:
    """A mode for tensors without values, which use no memory and whose copies and waits do not count."""
    own = Machine(len(machine.devices), machine.card, lambda *_: None)
    own.share_current_device(machine)
    return VirtualMode(own)
