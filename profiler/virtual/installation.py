"""Installs virtual devices in a process, and removes them again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from profiler.virtual import cuda, private_api
from profiler.virtual.cards import CARDS
from profiler.virtual.counts import EventSink
from profiler.virtual.tensors import Machine, VirtualMode, device_of, named_cuda

_TAG_PRIORITY: Final = 5
"""Before torch's own functions for storages of the CPU (10) and of CUDA (20) in torch/serialization.py."""
_MISSING: Final = object()


class VirtualCuda:
    """The virtual devices of this process, while they are installed."""

    def __init__(self, sink: EventSink, *, count: int = 1, card: str = "h100") -> None:
        self.mode = VirtualMode(Machine(count, CARDS[card], sink))
        self._undos: list[Callable[[], object]] = []

    def install(self) -> None:
        """Have torch show the devices.

        :raises RuntimeError: this version of torch lacks a private function that virtual devices need, or the machine
            has a real GPU.
        """
        if absent := private_api.missing():
            raise RuntimeError(f"virtual CUDA does not work with torch {torch.__version__}: it has no {absent[0]}")
        if torch.cuda.is_available():
            raise RuntimeError("this machine has a real GPU: a virtual one would hide it")
        cuda.use(self.mode)
        self._undos.append(lambda: cuda.use(None))
        for name, value in cuda.replacements(self.mode).items():
            for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
                if owner is torch.cuda or hasattr(owner, name):
                    self._replace(owner, name, value)
        self._replace(torch, "Generator", cuda.generator_class())
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
        self._replace(torch, "compile", _compile)
        self._threads()
        enter: Any = self.mode.__enter__
        enter()
        self._undos.append(self._leave)

    def remove(self) -> None:
        """Restore torch. Tensors that were on virtual devices are tensors of the CPU then."""
        while self._undos:
            self._undos.pop()()

    def _leave(self) -> None:
        leave: Any = self.mode.__exit__
        leave(None, None, None)

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
            "current_stream": lambda device=None: cuda.Stream.current or cuda.Stream(device),
            "set_stream": lambda stream: setattr(cuda.Stream, "current", stream),
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
        self._replace(torch, "set_default_device", set_default_device)
        self._replace(torch, "get_default_device", get_default_device)

    def _autograd(self) -> None:
        """Have code that a backward pass calls (hooks, functions of the program) see the devices."""
        original, mode = torch.autograd.graph._engine_run_backward, self.mode

        def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            before = mode.thread.backward_device
            mode.thread.backward_device = next((device for device in map(device_of, outputs) if device), before)
            try:
                if is_active(mode):
                    return original(outputs, *args, **kwargs)
                with mode:
                    return original(outputs, *args, **kwargs)
            finally:
                mode.thread.backward_device = before

        self._replace(torch.autograd.graph, "_engine_run_backward", run)
        self._replace(torch.autograd, "_engine_run_backward", run)
        # a checkpoint compares the devices of saved tensors of a forward pass within a torch function with those of the
        # second one outside
        checks = private_api.checkpoint_checks()
        extract = checks["default"]

        def metadata(tensor: torch.Tensor) -> Any:
            with torch._C.DisableTorchFunction():
                return extract(tensor)

        checks["default"] = metadata
        self._undos.append(lambda: checks.update(default=extract))

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

        def location(storage: Any) -> str | None:
            device = getattr(storage, "virtual_device", None)
            return None if device is None else str(device)

        def restore(storage: Any, place: str) -> Any:
            if not str(place).startswith("cuda"):
                return None
            mode.mark(torch.empty(0, dtype=torch.uint8).set_(storage), mode.machine.device(place))
            return storage

        torch.serialization.register_package(_TAG_PRIORITY, location, restore)
        entry = next(entry for entry in registry if entry[1] is location)
        self._undos.append(lambda: registry.remove(entry))

    def _distributed(self) -> None:
        """Communicate by gloo where the program names NCCL."""
        distributed = torch.distributed
        if not distributed.is_available():
            return
        begin, group = distributed.init_process_group, distributed.new_group

        def start(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("device_id", None)
            return begin(_without_nccl(backend), *args, **kwargs)

        def new(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("device_id", None)
            return group(ranks, timeout, _without_nccl(backend) if backend else backend, *args, **kwargs)

        self._replace(distributed, "init_process_group", start)
        self._replace(distributed, "new_group", new)
        self._replace(distributed, "is_nccl_available", lambda: True)

    def _threads(self) -> None:
        """A torch function mode belongs to a thread; have the threads that the program starts use it too."""
        mode, start = self.mode, threading.Thread.start

        def begin(self: threading.Thread) -> None:
            run = self.run

            def run_with_devices() -> None:
                if is_active(mode):
                    run()
                else:
                    with mode:
                        run()

            self.run = run_with_devices  # type: ignore[method-assign]
            start(self)

        self._replace(threading.Thread, "start", begin)


def is_active(mode: VirtualMode) -> bool:
    """Whether a mode is active in this thread."""
    return any(active is mode for active in private_api.active_modes())


def _without_nccl(backend: Any) -> Any:
    return "gloo" if backend is None or "nccl" in str(backend) else backend


def _compile(model: Any = None, **_: Any) -> Any:
    """Run what the program compiles eagerly: a compiled graph would be one for the CPU."""
    return (lambda function: function) if model is None else model
