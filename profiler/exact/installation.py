"""Installs virtual devices in a process, and removes them again."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor

from profiler.exact import cuda, private_api, waiting  # noqa: F401 - it has handlers
from profiler.exact.compiled import compile_replacement
from profiler.exact.marks import CPU, Machine, device_of, named_cuda
from profiler.exact.mode import BackwardWaits, VirtualMode, starting
from profiler.exact.model import CARDS, EventSink
from profiler.exact.moves import parse, tensor_types

_TAG_PRIORITY: Final = 5
"""Before torch's own functions for storages of the CPU (10) and of CUDA (20) in torch/serialization.py."""
_MISSING: Final = object()


class VirtualCuda:
    """The virtual devices of this process, while they are installed."""

    def __init__(self, sink: EventSink, *, count: int = 1, card: str = "h100") -> None:
        self.mode = VirtualMode(Machine(count, CARDS[card], sink))
        self._undos: list[Callable[[], object]] = []
        self._written = _Written()

    def install(self) -> None:
        """Have torch show the devices.

        :raises RuntimeError: the machine has a real GPU.
        """
        if torch.cuda.is_available():
            raise RuntimeError("this machine has a real GPU: a virtual one would hide it")
        cuda.use(self.mode)
        self._undos.append(lambda: cuda.use(None))
        for name, value in cuda.replacements(self.mode).items():
            for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
                if owner is torch.cuda or hasattr(owner, name):
                    self._replace(owner, name, value)
        for name, value in tensor_types(self.mode).items():
            self._replace(torch.cuda, name, value)
        self._replace(torch, "Generator", cuda.generator_class())
        self._replace(torch, "Stream", cuda.generic_class(torch.Stream, cuda.Stream))
        self._replace(torch, "Event", cuda.generic_class(torch.Event, cuda.Event))
        self._replace(torch.Tensor, "record_stream", cuda.always(None))
        self._replace(torch.cuda.nvtx, "_nvtx", _Nothing())
        self._bindings()
        self._replace(torch.version, "cuda", "13.0")
        self._replace(torch.backends.cuda, "is_built", lambda: True)
        self._replace(torch.backends.cudnn, "is_available", lambda: True)
        self._replace(torch.backends.cudnn, "is_acceptable", cuda.always(False))
        self._accelerator()
        self._default_device()
        self._autograd()
        self._groups()
        self._autocast()
        self._serialization()
        self._distributed()
        self._replace(torch, "compile", compile_replacement(self.mode, self._undos))
        self._scripts()
        mode: Any = self.mode  # it belongs to a thread: the threads that the program starts use it too
        self._replace(threading.Thread, "start", starting(lambda: nullcontext() if is_active(mode) else mode))
        mode.__enter__()
        self._undos.append(lambda: mode.__exit__(None, None, None))

    def remove(self) -> None:
        """Restore torch. Tensors that were on virtual devices are tensors of the CPU then."""
        while self._undos:
            self._undos.pop()()

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        original = vars(owner).get(name, _MISSING)
        undo = (lambda: delattr(owner, name)) if original is _MISSING else (lambda: setattr(owner, name, original))
        self._undos.append(undo)
        setattr(owner, name, value)

    def _accelerator(self) -> None:
        machine = self.mode.machine
        for name, value in {
            "is_available": cuda.always(True),
            "device_count": lambda: len(machine.devices),
            "current_accelerator": cuda.always(torch.device("cuda")),
            "current_device_index": lambda: machine.current,
            "set_device_index": lambda device: setattr(machine, "current", machine.device(device).index),
            # torch's compiler wants other objects than the functions of torch.cuda
            "current_stream": functools.partial(cuda.current_stream),
            "set_stream": functools.partial(cuda.set_stream),
            "device_index": cuda.device,
            "synchronize": lambda *_, **__: self.mode.wait("synchronize"),
        }.items():
            self._replace(torch.accelerator, name, value)

    def _default_device(self) -> None:
        """torch's own default device would be set within our mode, and make tensors of CUDA."""
        mode, original = self.mode, torch.set_default_device

        def set_default_device(device: Any) -> None:
            cuda_device = named_cuda(device)
            mode.default_device = mode.machine.device(device) if cuda_device else None
            original(None if cuda_device else device)

        def get_default_device() -> torch.device:
            return mode.default_device or before()

        before = torch.get_default_device
        set_type = torch.set_default_tensor_type

        def set_default_tensor_type(kind: Any) -> None:
            device, dtype = parse(kind) or ("cpu", None)
            mode.default_device = mode.machine.device() if device == "cuda" else None
            set_type(kind) if dtype is None or device == "cpu" else torch.set_default_dtype(dtype)

        self._replace(torch, "set_default_tensor_type", set_default_tensor_type)
        self._replace(torch, "set_default_device", set_default_device)
        self._replace(torch, "get_default_device", get_default_device)

    def _autograd(self) -> None:
        """Have code that a backward pass calls (hooks, functions of the program) see the devices."""
        original, mode = torch.autograd.graph._engine_run_backward, self.mode

        def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            before = mode.thread.backward_device
            mode.thread.backward_device = next((device for device in map(device_of, outputs) if device), before)
            try:
                with nullcontext() if is_active(mode) else mode, BackwardWaits(mode):
                    return original(outputs, *args, **kwargs)
            finally:
                mode.thread.backward_device = before

        self._replace(torch.autograd.graph, "_engine_run_backward", run)
        self._replace(torch.autograd, "_engine_run_backward", run)
        original_hooks = torch.autograd.graph.saved_tensors_hooks.__init__

        def with_devices(hook: Any) -> Any:
            def call(value: Any) -> Any:
                if is_active(mode):
                    return hook(value)
                with mode:
                    return hook(value)

            return call

        def initialize(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
            original_hooks(self, with_devices(pack_hook), with_devices(unpack_hook))

        self._replace(torch.autograd.graph.saved_tensors_hooks, "__init__", initialize)
        # a checkpoint compares the devices of saved tensors of a forward pass within a torch function with those of the
        # second one outside
        checks = private_api.checkpoint_checks()
        extract = checks["default"]

        def metadata(tensor: torch.Tensor) -> Any:
            with torch._C.DisableTorchFunction():
                return extract(tensor)

        checks["default"] = metadata
        self._undos.append(lambda: checks.update(default=extract))

    def _bindings(self) -> None:
        """Functions of torch._C that a torch for the CPU lacks, or that concern a device of the CPU there."""
        math = [True]

        def use_math(enabled: bool) -> None:
            """Attention may always be computed plainly here: the CPU lacks some of CUDA's ways."""
            math[0] = enabled

        machine = self.mode.machine

        def exchange(index: int) -> int:
            before = machine.current
            if index >= 0:
                machine.current = index
            return before

        for name, value in {
            **_COPIES,
            "_set_sdp_use_math": use_math,
            "_get_math_sdp_enabled": lambda: math[0],
            "_cuda_CUDAAllocator_AllocatorState": _Nothing,
            "_set_cached_tensors_enabled": cuda.always(None),
            "_host_emptyCache": cuda.always(None),
            "_get_accelerator": cuda.always(torch.device("cuda")),
            "_accelerator_getAccelerator": cuda.always(torch.device("cuda")),
            "_accelerator_getDeviceIndex": lambda: machine.current,
            "_accelerator_setDeviceIndex": exchange,
            "_accelerator_exchangeDevice": exchange,
            "_accelerator_maybeExchangeDevice": exchange,
        }.items():
            self._replace(torch._C, name, value)

    def _groups(self) -> None:
        """Optimizers and gradient clipping group tensors by device in C++, which sees those of the CPU."""
        original: Any = private_api.group_tensors()

        def group(lists: Any, with_indices: bool = False) -> dict[Any, Any]:
            groups: dict[Any, Any] = {}
            for (device, dtype), (members, indices) in original(lists, with_indices).items():
                rows: dict[Any, list[int]] = {}
                for row, tensor in enumerate(members[0]):
                    rows.setdefault(device_of(tensor) or device, []).append(row)
                for own, chosen in rows.items():
                    columns = [[column[row] for row in chosen] if column else [] for column in members]
                    groups[own, dtype] = columns, [indices[row] for row in chosen] if indices else indices
            return groups

        self._replace(torch._C, "_group_tensors_by_device_and_dtype", group)

    def _autocast(self) -> None:
        """Autocasting for CUDA casts by the CPU's rules, in the requested dtype."""
        original = torch.autocast.__init__

        @functools.wraps(original)  # torch's compiler reads the names of the parameters
        def initialize(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
            if device_type == "cuda":
                device_type, dtype = "cpu", dtype or torch.float16
                if dtype not in (torch.float16, torch.bfloat16):
                    kwargs, args, dtype = {**kwargs, "enabled": False}, (), torch.bfloat16
            original(self, device_type, dtype, *args, **kwargs)

        self._replace(torch.autocast, "__init__", initialize)

        def of_cpu(function: Any) -> Callable[..., Any]:
            return lambda device_type="cuda", *args: function("cpu" if device_type == "cuda" else device_type, *args)

        for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
            if hasattr(torch, name):
                self._replace(torch, name, of_cpu(getattr(torch, name)))

    def _serialization(self) -> None:
        """Save and load tensors with the devices that the program sees."""
        mode, registry = self.mode, torch.serialization._package_registry

        save, written = torch.save, self._written

        def save_once(*args: Any, **kwargs: Any) -> None:
            """Each storage is copied to the host once."""
            written.storages = set()
            try:
                save(*args, **kwargs)
            finally:
                written.storages = None

        def location(storage: Any) -> str | None:
            device = getattr(storage, "virtual_device", None)
            if device is None:
                return None
            if written.storages is not None and storage.data_ptr() not in written.storages:
                written.storages.add(storage.data_ptr())
                mode.copied("save", as_bytes(storage), (device, None), pinned=False, non_blocking=False)
            return str(device)

        def restore(storage: Any, place: str) -> Any:
            if not str(place).startswith("cuda"):
                return None
            device, data = mode.machine.device(place), as_bytes(storage)
            mode.copied("load", data, (None, device), pinned=False, non_blocking=False)
            mode.mark(data, device)
            return storage

        def as_bytes(storage: Any) -> torch.Tensor:
            return torch.empty(0, dtype=torch.uint8).set_(storage)

        self._replace(torch, "save", save_once)
        torch.serialization.register_package(_TAG_PRIORITY, location, restore)
        entry = next(entry for entry in registry if entry[1] is location)
        self._undos.append(lambda: registry.remove(entry))

    def _scripts(self) -> None:
        """Results of TorchScript are on the device of its arguments, or of the script's parameters."""
        mode = self.mode

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = torch.nn.Module.__call__(module, *args, **kwargs)
            device = mode.device_among((*args, *kwargs.values())) or mode.device_among(module.parameters())
            if device is not None:
                mode.mark(result, device)
            return result

        scripts: Any = torch.jit
        self._replace(scripts.RecursiveScriptModule, "__call__", call)
        self._replace(scripts.TopLevelTracedModule, "__call__", call)

        def copy_storage(storage: Any, device: Any = None, *_: Any, **__: Any) -> Any:
            result = storage.clone()
            mode.mark(torch.empty(0, dtype=torch.uint8).set_(result), mode.machine.device(device))
            return result

        self._replace(torch.UntypedStorage, "cuda", copy_storage)

        def flatten_parameters(network: torch.nn.RNNBase) -> None:
            """Put the weights of a recurrent network into one storage, as cuDNN has them."""
            weights = [weight for weight in network._flat_weights if isinstance(weight, torch.Tensor)]
            devices = {mode.device(weight) for weight in weights}
            if len(devices) != 1 or devices == {None} or len({weight.dtype for weight in weights}) > 1:
                return
            with torch.no_grad():
                joined = torch.cat([weight.reshape(-1) for weight in weights])
                parts = torch.split(joined, [weight.numel() for weight in weights])
                for weight, part in zip(weights, parts, strict=True):
                    weight.data = part.view_as(weight)

        self._replace(torch.nn.RNNBase, "flatten_parameters", flatten_parameters)

    def _distributed(self) -> None:
        """Communicate by gloo where the program names NCCL."""
        distributed = torch.distributed
        if not distributed.is_available():
            return
        begin, group, barrier = distributed.init_process_group, distributed.new_group, distributed.barrier
        c10d, named = distributed.distributed_c10d, [False]
        device_for_objects = c10d._get_object_coll_device

        def backend_of(backend: Any) -> Any:
            if backend is not None and "nccl" not in str(backend):
                return backend
            named[0] = True
            return "gloo"

        def start(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("device_id", None)
            return begin(backend_of(backend), *args, **kwargs)

        def new(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("device_id", None)
            return group(ranks, timeout, backend_of(backend) if backend else backend, *args, **kwargs)

        def wait_for_all(group: Any = None, async_op: bool = False, **_: Any) -> Any:
            if named[0] and not async_op:
                self.mode.wait("barrier")  # ProcessGroupNCCL synchronizes the stream
            before, torch._C._get_accelerator = torch._C._get_accelerator, cuda.always(CPU)
            try:
                return barrier(group, async_op)
            finally:
                torch._C._get_accelerator = before

        for owner in (distributed, c10d, distributed.device_mesh):
            self._replace(owner, "init_process_group", start)
            self._replace(owner, "new_group", new)
            self._replace(owner, "barrier", wait_for_all)
        self._replace(
            c10d, "_get_object_coll_device", lambda group=None: "cuda" if named[0] else device_for_objects(group)
        )
        self._replace(distributed, "is_nccl_available", cuda.always(True))


def is_active(mode: VirtualMode) -> bool:
    """Tell whether a mode is active in this thread."""
    return any(active is mode for active in private_api.active_modes())


class _Written(threading.local):
    """The storages that torch.save has written in this thread."""

    storages: set[int] | None = None


class _Nothing:
    """An object whose methods do nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return cuda.always(None)


# ---------------------------------------------------------------- copies of torch.nn.DataParallel


def _on(tensor: Tensor, device: int) -> Tensor:
    return tensor.to(torch.device("cuda", device), non_blocking=True) if device >= 0 else tensor.cpu()


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Return a copy on each device."""
    return [_on(tensor, device) for device in devices]


def _broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], _: int = 0) -> list[list[Tensor]]:
    """For each device, copies of all tensors."""
    return [[_on(tensor, device) for tensor in tensors] for device in devices]


def _scatter(
    tensor: Tensor, devices: Sequence[int], sizes: Sequence[int] | None = None, dim: int = 0, _: Any = None
) -> list[Tensor]:
    """Parts of a tensor, one on each device."""
    parts = torch.chunk(tensor, len(devices), dim) if sizes is None else torch.split(tensor, list(sizes), dim)
    return [_on(part, device) for part, device in zip(parts, devices, strict=False)]


def _gather(tensors: Sequence[Tensor], dim: int = 0, destination: int | None = None) -> Tensor:
    """Return the tensors on one device, joined."""
    device = 0 if destination is None else destination
    return torch.cat([_on(tensor, device) for tensor in tensors], dim)


_COPIES = {
    "_broadcast": _broadcast,
    "_broadcast_coalesced": _broadcast_coalesced,
    "_scatter": _scatter,
    "_gather": _gather,
}
"""Names in torch._C."""
