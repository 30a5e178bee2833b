"""Facts about a program: torch's version, device, rank and world size, dtypes, threads, compiler, and where code lies.

What the program may still change after its imports is read at a few of its first steps and every second from then on;
a switch that was on and is off then is off. What needs a look at every parameter is read at the first steps only.
Garbage collections that take long are recorded as regions, since they stop every thread that runs Python. Facts that
the program states itself take precedence.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks.syncs import NESTED, OPEN
from profiler.agent.patching import (
    STATE,
    Hook,
    caller,
    code_line,
    creation,
    is_user_code,
    is_user_file,
    on_unpatch,
    patch,
    user_frame,
)
from profiler.run.tables import GARBAGE_COLLECTION

_PACKAGE: Final = __file__.rpartition("/agent/")[0]
"""Folder of this package."""
_LAUNCHERS: Final = ("torch", "accelerate", *sys.stdlib_module_names)
"""Packages that run the user's program."""
_READ_AT: Final = (2, 20, 100)
"""The first boundaries between steps, at which all facts are read. With 3,000 parameters that takes 1.5 ms, which is
0.5 µs for each parameter."""
_READ_EVERY_NS: Final = 1_000_000_000
"""Time between readings after these, which leave out the parameters: some 15 µs each, 0.0015% of this time."""
_LONG_COLLECTION_NS: Final = 50_000
"""A garbage collection that takes longer is recorded: shorter ones may be frequent, and a record takes 2 µs."""
_MAX_COLLECT_LINES: Final = 32
"""Lines that collect garbage, of which calls are counted."""
_MAX_THREADS: Final = 32
"""Names of threads that are recorded."""
_MAX_OPTIMIZERS: Final = 8
"""Optimizers whose settings are recorded: a training has one or two."""
_MAX_BREAKS: Final = 100
"""Reasons for graph breaks that are looked at."""
_OPTIMIZER_SETTINGS: Final = ("foreach", "fused", "capturable", "differentiable")
_MOST_GROUPS: Final = 1000
"""Groups of an optimizer whose settings are compared, which takes some µs for each."""
_SAMPLED_TENSORS: Final = 24
"""Tensors of the optimizers in which denormal numbers are looked for: 0.6 ms a second, 0.06%."""
_SAMPLED_NUMBERS: Final = 256
_SMALLEST_NORMAL: Final = 2.0**-126
"""The smallest float32 that is not denormal."""
_DEBUG_VARIABLES: Final = (
    "CUDA_LAUNCH_BLOCKING",
    "TORCH_SHOW_CPP_STACKTRACES",
    "TORCH_DISTRIBUTED_DEBUG",
    "NCCL_DEBUG",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTHONDEVMODE",
    "PYTHONASYNCIODEBUG",
)
"""Environment variables that turn on a debugging mode."""
_OFF: Final = ("", "0", "OFF", "WARN", "VERSION")
"""Their values that turn nothing on that takes time."""


_torch: Final[list[ModuleType]] = []
"""The module torch, once it is imported."""


def _install_torch(module: Any) -> None:
    """CUDA is never initialized here; the device becomes `cuda` when the program initializes it."""
    _values.clear()  # of an earlier recording in this process
    _optimizers.clear()
    _created.clear()
    if not _torch:  # once in a process: it cannot be undone
        os.register_at_fork(after_in_child=_read_in_fork)
    _torch[:] = [module]
    facts = _StepFacts(module)
    if hasattr(module, "set_anomaly_enabled"):
        patch(module, "set_anomaly_enabled", facts.noting_anomaly)
    _read_in_steps(facts)
    collections = _Collections()
    gc.callbacks.append(collections.notify)
    on_unpatch(lambda: gc.callbacks.remove(collections.notify))
    patch(gc, "collect", _collect)
    folder = str(module.__file__).rpartition("/")[0]
    _add_facts(torch=str(module.__version__), device="cpu", package=_PACKAGE, torch_folder=folder)
    if main := _main_package():
        _add_facts(main=main)
    module.cuda._lazy_call(lambda: _add_facts(device="cuda"))  # called right after that, or at once if it has happened
    if (size := os.environ.get("WORLD_SIZE", "")).isdecimal():
        _add_facts(world_size=int(size))
    if hasattr(module, "set_autocast_dtype"):  # 0.7 µs at each entry of autocast
        patch(module, "set_autocast_dtype", lambda original: _autocast(original, module.is_autocast_enabled))
    if hasattr(module, "compile"):
        patch(module, "compile", _compiled)


def _read_in_steps(facts: _StepFacts) -> None:
    if STATE.recorder is not None:
        STATE.recorder.on_step.append(facts.read)


def _read_in_fork() -> None:
    """Let a forked process read facts from its first step on: it has a recorder and optimizers of its own."""
    _optimizers.clear()
    _created.clear()
    _read_in_steps(_StepFacts(_torch[0]))


def _add_facts(**facts: Any) -> None:
    if STATE.recorder is not None:
        STATE.recorder.add_hook_facts(**facts)


_values: Final[dict[str, set[str]]] = {}


def _add_value(fact: str, value: str) -> None:
    """Add a value to a fact that may have several; they are sorted."""
    values = _values.setdefault(fact, set())
    if value not in values:
        values.add(value)
        _add_facts(**{fact: ", ".join(sorted(values))})


def _autocast(original: Callable[..., None], enabled: Callable[[str], bool]) -> Callable[..., None]:
    """torch's context manager enables autocast before it sets the dtype."""

    def set_autocast_dtype(device: str, dtype: Any) -> None:
        original(device, dtype)
        if STATE.recorder is not None and enabled(device):
            _add_value("autocast", str(dtype).removeprefix("torch."))

    return set_autocast_dtype


def _compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - the name that torch has for it
        if STATE.recorder is not None and not kwargs.get("disable"):
            backend = kwargs.get("backend") or "inductor"
            name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
            _add_value("compile", f"{name} {kwargs.get('mode') or ''}".strip())
        return original(*args, **kwargs)

    return compile


def _param_group_added(original: Callable[..., None]) -> Callable[..., None]:
    def add_param_group(self: Any, param_group: Any, *args: Any, **kwargs: Any) -> None:
        original(self, param_group, *args, **kwargs)
        if STATE.recorder is not None:
            known = _optimizers.get(id(self))
            if known is None or known() is not self:
                _created.pop(id(self), None)
                if len(_created) < _MAX_OPTIMIZERS:
                    _created[id(self)] = creation(caller(1))
                _optimizers[id(self)] = weakref.ref(self)
            for parameter in param_group["params"]:
                _add_value("parameter_dtype", str(getattr(parameter, "dtype", "")).removeprefix("torch."))

    return add_param_group


# ---------------------------------------------------------------- at the first steps

_optimizers: Final[dict[int, weakref.ref[Any]]] = {}
"""The optimizers by their id: one need not have a hash."""
_created: Final[dict[int, dict[str, Any]]] = {}
"""Where each of the first optimizers was made, by its id."""


class _StepFacts:
    """Reads facts at some boundaries between steps."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch: Any = torch
        self._boundaries = 0
        self._last = 0
        self._denormal = 0.0
        """The largest share so far."""
        self._anomaly = False
        """Whether anomaly detection was turned on since the last reading. A program may do that in each step."""

    def noting_anomaly(self, original: Callable[..., None]) -> Callable[..., None]:
        """Both context managers of torch call it."""

        def set_anomaly_enabled(mode: bool, *args: Any, **kwargs: Any) -> None:
            original(mode, *args, **kwargs)
            self._anomaly = self._anomaly or bool(mode)

        return set_anomaly_enabled

    def read(self) -> None:
        self._boundaries += 1
        recorder, time = STATE.recorder, now()
        if recorder is None:
            return
        is_first = self._boundaries in _READ_AT
        if not is_first and (self._boundaries < _READ_AT[-1] or time - self._last < _READ_EVERY_NS):
            return
        self._last = time
        try:
            facts = self._facts(parameters=is_first)
            if any(recorder.hook_facts.get(name) != value for name, value in facts.items()):  # else no file is written
                recorder.add_hook_facts(**facts)
        except Exception as error:  # noqa: BLE001 - the edge to the program, which goes on; the run's status reports it
            recorder.hook_errors["facts"] = f"{type(error).__name__}: {error}"

    def _facts(self, *, parameters: bool) -> dict[str, Any]:
        """Return the facts, with or without those for which every parameter is looked at."""
        torch, cores, recorder = self._torch, os.sched_getaffinity(0), STATE.recorder
        anomaly, self._anomaly = self._anomaly, False
        facts: dict[str, Any] = {
            "torch_threads": _call(torch, "get_num_threads"),
            "torch_interop_threads": _call(torch, "get_num_interop_threads"),
            "cores": len(cores),
            "affinity": f"{sum(1 << core for core in cores):x}",  # the mask that taskset prints
            "python_threads": list(_other_threads()),
        }
        if limit := os.environ.get("OMP_NUM_THREADS"):
            facts["omp_num_threads"] = limit
        if policy := os.environ.get("OMP_WAIT_POLICY"):
            facts["omp_wait_policy"] = policy.strip().lower()
        if _has_gnu_openmp(torch):
            facts["openmp"] = "gnu"
        if breaks := list(_graph_breaks()):
            facts["graph_breaks"] = breaks
        if parameters and (optimizers := list(_optimizer_settings())):
            facts["optimizers"] = optimizers
        if variables := {name: os.environ[name] for name in _DEBUG_VARIABLES if os.environ.get(name, "") not in _OFF}:
            facts["debug_variables"] = variables
        default = str(_call(torch, "get_default_dtype") or "torch.float32").removeprefix("torch.")
        switches = {
            "default_dtype": default if default != "float32" else "",
            "anomaly_detection": bool(_call(torch, "is_anomaly_enabled")) or anomaly,
            "deterministic_algorithms": (deterministic := _call(torch, "are_deterministic_algorithms_enabled")),
            # versions before 2.2 have no such setting
            "fills_memory": bool(
                deterministic
                and getattr(getattr(torch.utils, "deterministic", None), "fill_uninitialized_memory", False)
            ),
        }
        if parameters:
            switches["float64_parameters"] = _float64_share()
        if recorder is not None and not recorder.on_mode:  # else these operators would be counted
            outside, OPEN.inside = OPEN.inside, NESTED  # no reads of the program
            try:
                self._denormal = max(self._denormal, _denormal_share(torch))
            finally:
                OPEN.inside = outside
            switches["denormal"] = round(self._denormal, 3)
        known = {name: value for name, value in facts.items() if value is not None}
        before = recorder.hook_facts if recorder is not None else {}
        return {**known, **{name: value for name, value in switches.items() if value or before.get(name)}}


def _call(torch: Any, function: str) -> Any:
    """Return what a function of torch returns; None in a version of torch that does not have it."""
    return getattr(torch, function, lambda: None)()


def _has_gnu_openmp(torch: Any) -> bool:
    """Tell whether torch comes with GNU's OpenMP, as its wheels for Linux do."""
    with suppress(OSError):
        folder = str(torch.__file__).rpartition("/")[0]
        return any(name.startswith("libgomp") for name in os.listdir(f"{folder}/lib"))  # noqa: PTH208
    return False


def _other_threads() -> Iterator[str]:
    """Return the names of the threads of Python besides the main one. threading.enumerate would take a lock."""
    threads: Mapping[int, threading.Thread] = getattr(threading, "_active", {}).copy()
    main = threading.main_thread()
    names = (thread.name for thread in threads.values() if thread is not main)
    return (name for name, _ in zip(names, range(_MAX_THREADS), strict=False))


def _graph_breaks() -> Iterator[dict[str, Any]]:
    """Return the user's lines at which torch.compile has ended a graph, in the order in which it met them: file, number
    and function. torch itself collects the reasons."""
    reasons = getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", ())
    stacks = (getattr(reason, "user_stack", ()) for reason in list(reasons)[:_MAX_BREAKS])
    innermost = (stack[-1] for stack in stacks if stack)
    places = ((frame.filename, frame.lineno or 0, frame.name) for frame in innermost if is_user_file(frame.filename))
    return ({"file": file, "line": line, "function": name} for file, line, name in dict.fromkeys(places))


def _float64_share() -> float:
    """Return the share of the optimizers' parameters, by elements, that are in float64 now."""
    total = double = 0
    for reference in list(_optimizers.values()):
        for group in getattr(reference(), "param_groups", ()):
            for parameter in group["params"]:
                elements, dtype = parameter.numel(), str(parameter.dtype)
                total += elements
                double += elements * (dtype == "torch.float64")
    return round(double / total, 3) if total else 0.0


def _denormal_share(torch: Any) -> float:
    """Return the share of denormal numbers among samples of the optimizers' parameters and state on the CPU.

    It takes about 25 µs for each sampled tensor, and 0.1 µs for each parameter. A float32 is denormal between 0 and
    1.18e-38.
    """
    modes = ("_len_torch_dispatch_stack", "_len_torch_function_stack")  # a mode of the program would see the operators
    if any(getattr(getattr(torch, "_C", None), name, int)() for name in modes):
        return 0.0
    kinds, numbers = (torch.Tensor, torch.nn.Parameter), list[float]()
    states = [pair for known in [*_optimizers.values()] for pair in [*(getattr(known(), "state", None) or {}).items()]]
    chosen = states[:: len(states) // _SAMPLED_TENSORS + 1]
    values = [each for one, state in chosen for each in (one, *(state.values() if isinstance(state, dict) else ()))]
    tensors = [each for each in values if type(each) in kinds and each.ndim]
    for tensor in tensors[:: len(tensors) // _SAMPLED_TENSORS + 1]:
        is_plain = tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.layout == torch.strided
        # FSDP takes the memory of parameters away between their uses
        if is_plain and tensor.is_contiguous() and tensor.untyped_storage().nbytes() >= 4 * tensor.numel():
            middle = max(0, (tensor.numel() - _SAMPLED_NUMBERS) // 2)
            numbers += tensor.detach().view(-1)[middle : middle + _SAMPLED_NUMBERS].tolist()
    return sum(0.0 < abs(number) < _SMALLEST_NORMAL for number in numbers) / len(numbers) if numbers else 0.0


def _optimizer_settings() -> Iterator[dict[str, Any]]:
    """Yield the settings of the first group of each optimizer, its size, and where it was made."""
    for key, place in list(_created.items()):
        optimizer = _optimizers[key]()
        groups = getattr(optimizer, "param_groups", ())
        if not groups:
            continue
        parameters = [parameter for group in groups for parameter in group["params"]]
        yield {
            "class": f"{type(optimizer).__module__}.{type(optimizer).__name__}",
            **{name: groups[0].get(name) for name in _OPTIMIZER_SETTINGS},
            "groups": len(groups),
            "settings": len({_settings(group) for group in groups[:_MOST_GROUPS]}),
            "tensors": len(parameters),
            "elements": sum(parameter.numel() for parameter in parameters),
            "devices": sorted({parameter.device.type for parameter in parameters}),
            **place,
        }


def _settings(group: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the settings of a group of parameters, to compare them."""
    return tuple((name, _comparable(value)) for name, value in group.items() if name != "params")


def _comparable(value: Any) -> Any:
    """Return a value that can be compared at once: one of a tensor would wait for its device."""
    if isinstance(value, tuple):
        return tuple(map(_comparable, value))
    return value if value is None or type(value) in (bool, int, float, str) else id(value)


class _Collections:
    """Records each long garbage collection as a region of the thread that runs it."""

    def __init__(self) -> None:
        self._begun = now()

    def notify(self, phase: str, _: Mapping[str, int]) -> None:
        """Python calls this before and after each collection, with the GIL held."""
        if phase == "start":
            self._begun = now()
        elif now() - self._begun > _LONG_COLLECTION_NS:
            recorder = STATE.recorder
            if recorder is not None and recorder.detailed:
                recorder.region(GARBAGE_COLLECTION, self._begun, recorder.thread.depth)


def _collect(original: Callable[..., int]) -> Callable[..., int]:
    """Note the user's lines that collect garbage themselves: Python collects it only where much was allocated."""
    known: dict[tuple[str, int], dict[str, Any]] = {}

    def collect(*args: Any, **kwargs: Any) -> int:
        recorder, frame = STATE.recorder, user_frame(caller(1))
        if recorder is not None and frame is not None and is_user_code(frame.f_code):
            place = frame.f_code.co_filename, frame.f_lineno
            if place in known or len(known) < _MAX_COLLECT_LINES:
                line = known.setdefault(place, code_line(frame.f_code, frame.f_lineno) | {"count": 0})
                line["count"] += 1
                if line["count"].bit_count() == 1:
                    recorder.add_hook_facts(gc_calls=list(known.values()))
        return original(*args, **kwargs)

    return collect


# ---------------------------------------------------------------- the program's package and its ranks


def _main_package() -> str:
    """Top-level package of a program that was started as a module or by an installed script."""
    main: Any = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    name = ""
    if spec is not None:
        name = spec.name
    elif sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv[:-1]:  # its package is imported before __main__ is complete
        name = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    elif file and not file.endswith(".py"):
        name = _first_called_module(file)
    top = name.partition(".")[0]
    return "" if top in _LAUNCHERS else top


def _first_called_module(script: str) -> str:
    """Return the first module that `script` called: it imports torch, directly or indirectly."""
    frame: FrameType | None = sys._getframe(1)
    module = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file == script:
            return module
        if not file.startswith("<"):
            module = str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return ""


def _process_group_initialized(original: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    """A program that starts its ranks itself does not set environment variables, but calls this."""

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        recorder = STATE.recorder
        if recorder is not None:
            recorder.rank = int(module.get_rank())
            recorder.add_hook_facts(world_size=int(module.get_world_size()))
        return result

    return init_process_group


def _packed(original: Callable[..., Any]) -> Callable[..., Any]:
    """A program that packs padded sequences does not compute with their padding."""

    def pack_padded_sequence(*args: Any, **kwargs: Any) -> Any:
        if STATE.recorder is not None and not STATE.recorder.hook_facts.get("packed_sequences"):
            _add_facts(packed_sequences=True)
        return original(*args, **kwargs)

    return pack_padded_sequence


PLUGIN = Hook(
    "facts",
    {
        "torch.nn.utils.rnn": lambda module: patch(module, "pack_padded_sequence", _packed),
        "torch": _install_torch,
        "torch.optim.optimizer": lambda module: patch(module.Optimizer, "add_param_group", _param_group_added),
        "torch.distributed.distributed_c10d": lambda module: patch(
            module, "init_process_group", lambda original: _process_group_initialized(original, module)
        ),
    },
)
