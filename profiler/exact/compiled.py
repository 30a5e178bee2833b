"""Runs torch.compile and CUDA graphs on virtual devices.

Dynamo traces functions, and torch executes their graphs as they are. Dynamo finds graph breaks, and reasons to compile
again, while it traces. It traces with tensors without values, which this module marks with the devices that the program
sees, so that code that asks for a device takes the same way as on a GPU. It does not see our mode, which gets the
functions of a graph when the graph runs. Where Dynamo fails, the function runs as the program wrote it.

The operators of a CUDA graph's capture are kept, and each replay executes them again. As on a GPU, a capture changes
nothing, and a replay reads the tensors of the capture and writes its results to the tensors that the capture made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.exact import private_api
from profiler.exact.marks import Machine, device_of, tensors_in
from profiler.exact.mode import VirtualMode
from profiler.exact.model import DeviceEvent, EventKind

# ---------------------------------------------------------------- torch.compile


_HERE: Final = Path(__file__).parent.as_posix() + "/"
_REPLACED: Final = frozenset({"backend", "mode", "options", "fullgraph"})
"""Options of torch.compile that do not apply: they choose a backend, or forbid graph breaks, which are counted."""


def compile_replacement(mode: VirtualMode, undos: list[Callable[[], object]]) -> Callable[..., Any]:
    """Return a function in the place of torch.compile, which changes Dynamo when it is first called.

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
    # a mode for tensors without values, which use no memory and whose copies and waits do not count
    own = Machine(len(mode.machine.devices), mode.machine.card, lambda *_: None)
    own.share_current_device(mode.machine)
    tracing = VirtualMode(own)
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


# ---------------------------------------------------------------- CUDA graphs


_POOL: Final = (0, 1)
"""Identity of the memory pool that graphs name; all of them share the CPU's memory."""


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps operators with their arguments and results.

    It executes them, so that results exist, and takes back what they changed: a capture runs nothing.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self._made: set[int] = set()
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._random = torch.get_rng_state()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        for argument, value in zip(func._schema.arguments, args, strict=False):
            self._keep(argument, value)
        for argument in func._schema.arguments:
            self._keep(argument, options.get(argument.name))
        result = func(*args, **options)
        if all(returned.alias_info is None for returned in func._schema.returns):
            self._made.update(tensor.untyped_storage().data_ptr() for tensor in _strided(result))
        self.calls.append((func, args, options, result))
        return result

    def _keep(self, argument: Any, value: Any) -> None:
        """Keep the memory of an argument that an operator is about to change."""
        if argument.alias_info is None or not argument.alias_info.is_write:
            return
        for tensor in _strided(value):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._made and storage.data_ptr() not in self._before:
                copy: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]
                self._before[storage.data_ptr()] = storage, copy

    def take_back(self) -> None:
        """Restore what the operators changed."""
        for storage, before in self._before.values():
            storage.copy_(before)
        self._before.clear()
        torch.set_rng_state(self._random)

    def play(self) -> None:
        """Execute the operators again."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for func, args, options, result in self.calls:
                again = func(*args, **options)
                for old, new in zip(_strided(result), _strided(again), strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def _strided(values: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in((values,)) if tensor.layout is torch.strided]


def graph_class(mode: VirtualMode) -> type:
    """Return the class in the place of torch.cuda.CUDAGraph."""

    class CUDAGraph:
        """The operators of a capture."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._recording: _Recording | None = None

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
            """Keep operators from now on. The host may not wait for the device meanwhile."""
            self._recording = _Recording()
            mode.report(DeviceEvent(EventKind.LAUNCH, "graph capture", waits=False))
            mode.capturing = True
            enter: Any = self._recording.__enter__
            enter()

        def capture_end(self) -> None:
            """End the capture."""
            mode.capturing = False
            recording = self._captured()
            leave: Any = recording.__exit__
            leave(None, None, None)
            with torch._C.DisableTorchFunction():
                recording.take_back()

        def replay(self) -> None:
            """Execute the operators of the capture again."""
            recording = self._captured()
            mode.report(DeviceEvent(EventKind.LAUNCH, "graph replay", waits=False))
            recording.play()

        def _captured(self) -> _Recording:
            if self._recording is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            return self._recording

        def reset(self) -> None:
            """Forget the capture."""
            self._recording = None

        def instantiate(self) -> None:
            """A capture needs no further preparation."""

        def pool(self) -> Any:
            """Return the identity of the memory pool."""
            return _POOL

        def register_generator_state(self, generator: Any) -> None:
            """Replays draw from the generators of the CPU anyway."""

        def enable_debug_mode(self) -> None:
            """There is no graph to look at."""

    return CUDAGraph


def pool_handle() -> tuple[int, int]:
    """In the place of torch.cuda.graph_pool_handle."""
    return _POOL
