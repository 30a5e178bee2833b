"""Records torch's own trace (Kineto) of some steps, at level full, beside the other records."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks._profiler_window import ProfilerWindow
from profiler.agent.patching import STATE, Hook
from profiler.run.tables import ENV_TRACE_SECONDS, ENV_TRACE_STEPS

SKIP: Final = 5
"""Steps before the window: compilers, caches and allocators settle in them."""
STEPS: Final = 5
"""Steps in the window, unless the environment variable ENV_TRACE_STEPS is set."""
TRACE: Final = "kineto.json.gz"
_LOG_LEVEL: Final = "KINETO_LOG_LEVEL"
_SILENT: Final = "99"
_READINGS: Final = 5
_COMPRESSION: Final = 1  # of gzip: 5 times smaller at 100 MB/s; level 9 makes it 7 times, and takes ten times as long


def install(module: ModuleType) -> ProfilerWindow | None:
    """Trace one window in the life of the recorder, unless the program uses torch's profiler itself."""
    if STATE.recorder is None:
        return None
    enough = round(_number(ENV_TRACE_SECONDS, 0.0) * 1e9)
    steps = round(_number(ENV_TRACE_STEPS, STEPS))
    window = ProfilerWindow(STATE.recorder, "trace", KinetoSession, skip=SKIP, steps=steps, enough_ns=enough)
    return window.install(module)


def _number(variable: str, default: float) -> float:
    """Return a variable's value above 0, else the default."""
    text = os.environ.get(variable, "")
    return (float(text) if text.replace(".", "", 1).isdecimal() else 0.0) or default


class KinetoSession:
    """One session of torch's profiler, with the pairs that tie its clock to ours.

    It runs from its creation to `finish`, which only the same thread may call.

    :param torch: the module. GPU activity is traced if the program has used a GPU by now.
    """

    def __init__(self, torch: ModuleType) -> None:
        kinds = torch.profiler.ProfilerActivity
        wanted = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_initialized() else [])]
        known = torch.profiler.supported_activities()
        self._torch = torch
        self._profile: Any = torch.profiler._KinetoProfile(activities=[kind for kind in wanted if kind in known])
        with _quiet(torch):
            self._profile.start()
        self.begin = now()
        self.end = 0
        self._pair = clock_pair()

    def next_step(self) -> None:
        """The trace goes on."""

    def finish(self, directory: Path) -> dict[str, Any]:
        """End the session and write `directory`/TRACE, completely or not at all.

        :return: `clock`: pairs (our clock, time of day) in ns, from the start and from the end; the trace has the time
            of day.
        :raises OSError: the disk is full. torch may raise other errors.
        """
        pairs = [self._pair, clock_pair()]
        self.end = now()
        self._profile.stop()
        plain, packed = directory / "kineto.json.new", directory / (TRACE + ".new")
        try:
            self._profile.export_chrome_trace(str(plain))
            self._profile = None
            _check_complete(plain)
            with open(plain, "rb") as source, gzip.open(packed, "wb", _COMPRESSION) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            packed.replace(directory / TRACE)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        return {"clock": pairs}

    def abandon(self) -> None:
        """Stop collecting in a forked child, which does not have the session."""
        self._torch._C._autograd._enable_record_function(False)


def clock_pair() -> tuple[int, int]:
    """Return the same moment on our clock and as time of day, ns: the fastest of some readings, exact to less than a
    µs."""
    readings = []
    for _ in range(_READINGS):
        before, day, after = now(), time.time_ns(), now()
        readings.append((after - before, (before + after) // 2, day))
    _, ours, day = min(readings)
    return ours, day


@contextmanager
def _quiet(torch: ModuleType) -> Iterator[None]:
    """Keep Kineto, which reads its log level at its first session, and torch from writing into the program's output.

    torch 2.11 warns at every start that a later session clears the events. `warnings.catch_warnings` would make the
    program's own warnings appear again.
    """
    had, module = os.environ.get(_LOG_LEVEL), torch.profiler.profiler
    os.environ.setdefault(_LOG_LEVEL, _SILENT)
    warn_once = getattr(module, "_warn_once", None)
    if warn_once is not None:
        module._warn_once = lambda *_, **__: None
    try:
        yield
    finally:
        if warn_once is not None:
            module._warn_once = warn_once
        if had is None:
            del os.environ[_LOG_LEVEL]


def _check_complete(path: Path) -> None:
    """torch does not report a full disk."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(f"{path.name} is cut off: is the disk full?")


PLUGIN = Hook("torch-trace", {"torch.autograd.profiler": install}, levels=("full",), beside_marks=True)
