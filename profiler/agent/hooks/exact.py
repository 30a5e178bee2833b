"""Shows a program virtual CUDA devices, and counts by line: operators, memory, collectives, waits, reads on the CPU.

Both only in a program that was started for it. Every wait and copy becomes a record of the run, without a length, since
a CPU's times tell nothing about a GPU. What was counted is written at each boundary of a step, and where evaluations
begin and end.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from itertools import starmap
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final, NoReturn

from profiler.agent.clocks import now
from profiler.agent.hooks import syncs
from profiler.agent.hooks.dynamo import skip_functions
from profiler.agent.patching import DETAILED, STATE, Hook, is_user_file, on_unpatch, patch
from profiler.agent.recorder import Recorder
from profiler.run.tables import (
    COUNTED,
    ENV_COUNT,
    ENV_VIRTUAL_CUDA,
    NON_BLOCKING,
    CallKind,
    CountKind,
    StageKind,
    packer,
)

# ---------------------------------------------------------------- virtual devices


def shows_virtual_cuda() -> bool:
    """Tell whether this program is to see virtual devices."""
    return bool(os.environ.get(ENV_VIRTUAL_CUDA))


def record(event: Any, frame: FrameType) -> None:
    """Record an event with the line of the program."""
    recorder = STATE.recorder
    if recorder is None or recorder.drains:  # a device of the program's own records what it asks for
        return
    if event.waits:
        recorder.count("syncs")
    if event.kind in ("h2d", "d2h"):
        recorder.count(str(event.kind))
        recorder.count(f"{event.kind}_bytes", event.size)
    if recorder.detailed:
        kind = CallKind.SYNC if event.kind == "sync" else CallKind[event.kind.upper()]
        name = event.name if kind is CallKind.SYNC else _copy_name(event)
        recorder.call(kind, name, now(), size=event.size, **syncs.sites(recorder, frame))


def _copy_name(event: Any) -> str:
    if event.kind == "launch":
        return str(event.name)
    memory = "" if event.kind == "d2d" else " pinned" if event.pinned else " pageable"
    return f"{event.name}{memory}{'' if event.waits else f' {NON_BLOCKING}'}"


def _install_devices(_: Any) -> None:
    if not shows_virtual_cuda():
        return
    from profiler.exact import private_api

    private_api.require(private_api.NAMES, "virtual CUDA")
    from profiler.exact.installation import VirtualCuda

    count, _, card = os.environ[ENV_VIRTUAL_CUDA].partition(":")
    devices = VirtualCuda(record, count=int(count), card=card)
    on_unpatch(devices.remove)
    devices.install()
    if STATE.recorder is not None:
        STATE.recorder.add_hook_facts(virtual_cuda=int(count), virtual_card=devices.mode.machine.card.name)


def _refuse_extensions(extensions: ModuleType) -> None:
    """CUDA kernels in C++ need a compiler of CUDA and a GPU."""
    if not shows_virtual_cuda():
        return

    def checked(original: Any) -> Any:
        def load(name: str, sources: Any = (), *args: Any, **options: Any) -> Any:
            files = [sources] if isinstance(sources, str) else sources
            if options.get("with_cuda") or any(str(file).endswith(".cu") for file in files):
                _refuse(f"the CUDA extension {name}")
            return original(name, sources, *args, **options)

        return load

    def checked_inline(original: Any) -> Any:
        def load_inline(name: str, cpp_sources: Any = (), cuda_sources: Any = None, *args: Any, **options: Any) -> Any:
            if cuda_sources or options.get("with_cuda"):
                _refuse(f"the CUDA extension {name}")
            return original(name, cpp_sources, cuda_sources, *args, **options)

        return load_inline

    patch(extensions, "load", checked)
    patch(extensions, "load_inline", checked_inline)


def _refuse_triton(jit: ModuleType) -> None:
    if not shows_virtual_cuda():
        return

    def refusing(_: Any) -> Any:
        def run(self: Any, *_args: Any, **_options: Any) -> NoReturn:
            _refuse(f"the Triton kernel {self.fn.__name__}")

        return run

    patch(jit.JITFunction, "run", refusing)


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"profiler: {what} does not run on virtual CUDA devices")


VIRTUAL_CUDA = Hook(
    "virtual_cuda",
    {"torch": _install_devices, "torch.utils.cpp_extension": _refuse_extensions, "triton.runtime.jit": _refuse_triton},
)


# ---------------------------------------------------------------- counts


_PACK: Final = packer("counts").pack
_KINDS: Final = {kind.name.lower(): int(kind) for kind in CountKind}
"""By the value of the operator's kind. Looking for a member of an enumeration takes longer."""
_COLLECTIVE, _FLOPS = int(CountKind.COLLECTIVE), int(CountKind.FLOPS)
_ALLOCATION, _GROWTH, _PEAK = int(CountKind.ALLOCATION), int(CountKind.GROWTH), int(CountKind.PEAK)


def is_counting() -> bool:
    """Tell whether this program is to be counted."""
    return bool(os.environ.get(ENV_COUNT))


def is_exact() -> bool:
    """Tell whether waits and reads are counted exactly, so that no hook estimates them."""
    return is_counting() or shows_virtual_cuda()


def _install(module: Any) -> None:
    recorder = STATE.recorder
    if not is_counting() or recorder is None:
        return
    from profiler.exact import private_api

    names = private_api.COUNTING_NAMES if shows_virtual_cuda() else private_api.NAMES + private_api.COUNTING_NAMES
    try:
        private_api.require(names, "counting")
    except RuntimeError as error:
        sys.exit(f"profiler: {error}")
    from profiler.exact import counting
    from profiler.exact.operators import OperatorCounter

    writer = _Writer(recorder)
    folder = f"{module.__path__[0]}/"  # torch may be in a folder that does not look like one of packages
    counter = OperatorCounter(
        writer.site, lambda file: is_user_file(file) and not file.startswith(folder), writer.write
    )
    writer.counter = counter
    installed = counting.Counting(counter, None if shows_virtual_cuda() else record)
    installed.install()
    on_unpatch(installed.remove)
    if installed.reads is not None:
        _reads[:] = [installed.reads]
        for owner in counting.OPTIMIZERS:
            patch(owner, "step", functools.partial(_stepping, counting.step_optimizer))
    os.register_at_fork(after_in_child=writer.forked)
    writer.begin(recorder)
    recorder.add_hook_facts(**{COUNTED: True})


_reads: Final[list[Any]] = []
"""The mode that counts reads on the CPU, where there is one."""


def _install_compiled(module: Any) -> None:
    if not is_counting():
        return
    from profiler.exact.marks import MemoryModel
    from profiler.exact.operators import OperatorMode

    skip_functions(module, (OperatorMode.__torch_dispatch__, MemoryModel._free))
    if _reads:
        patch(module.eval_frame.OptimizeContext, "__call__", _compiled)


def _install_loader(module: Any) -> None:
    """Leave out the operators that receive what a worker has made: in which step it arrives differs between runs."""
    if not is_counting():
        return

    def leaving_out(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def receive(*args: Any, **kwargs: Any) -> Any:
            from profiler.exact.operators import uncounted  # torch imports the loader before what this needs

            with uncounted():
                return original(*args, **kwargs)

        return receive

    patch(module._MultiProcessingDataLoaderIter, "_try_get_data", leaving_out)
    patch(module._utils.pin_memory, "_pin_memory_loop", leaving_out)


def _compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Have compiled functions run without the mode that counts reads."""

    def compile_function(self: Any, function: Any) -> Any:
        compiled = original(self, function)
        if not isinstance(compiled, FunctionType):
            return compiled

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            return _reads[0].call_compiled(compiled, args, kwargs)

        return call

    return compile_function


def _stepping(make_step: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Have steps of torch's optimizers run without the mode that counts reads."""

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return make_step(_reads[0], original, self, *args, **kwargs)

    return step


class _Writer:
    """Writes what was counted into the record of this process."""

    counter: Any

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def site(self, frame: FrameType) -> int:
        """Return the number of a line."""
        return self.recorder.site(frame)

    def forked(self) -> None:
        """Write into the record of a forked process; what its parent had counted is not a part of it."""
        if STATE.recorder is None or STATE.recorder is self.recorder:
            return
        self.begin(STATE.recorder)
        self.counter.begin_anew()

    def begin(self, recorder: Recorder) -> None:
        """Write at the ends of steps, and where evaluations begin and end."""
        self.recorder = recorder
        recorder.on_step.append(self.write)
        recorder.on_mode.append(self.write)

    def write(self) -> None:
        """Write what was counted since the last call."""
        recorder, when = self.recorder, now()
        names, rows = recorder.names, []
        for operator, site, count, amount in self.counter.take():
            name, kind = names[operator.name], _KINDS[operator.kind.value]
            if kind == _COLLECTIVE:
                rows.append((when, count, amount, name, kind, site))
                continue
            rows.append((when, count, 0, name, kind, site))
            if amount:
                rows.append((when, amount, 0, name, _FLOPS, site))
        changes, name = self.counter.memory.changes(), names[""]
        for site, (count, size) in changes.allocated.items():
            rows.append((when, count, size, name, _ALLOCATION, site))
        for site, (count, size) in changes.growth.items():
            if count or size:
                rows.append((when, count, size, name, _GROWTH, site))
        for site, size in changes.peak.items():
            rows.append((when, 0, size, name, _PEAK, site))
        recorder.append_records("counts", b"".join(starmap(_PACK, rows)))
        begins, self.counter.forwards = self.counter.forwards, set()
        for begin in sorted(begins):
            recorder.stage(StageKind.FORWARD, "forward", begin, begin)


COUNTS = Hook(
    "counts",
    {"torch": _install, "torch._dynamo": _install_compiled, "torch.utils.data.dataloader": _install_loader},
    levels=DETAILED,
)


PLUGINS = (COUNTS, VIRTUAL_CUDA)
