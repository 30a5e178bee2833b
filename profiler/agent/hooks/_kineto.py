"""One session of torch's profiler: its start, its end and its file, with the pairs that tie its clock to ours."""

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

from profiler.agent.recorder import now

TRACE: Final = "kineto.json.gz"
_LOG_LEVEL: Final = "KINETO_LOG_LEVEL"
_SILENT: Final = "99"
_READINGS: Final = 5
_COMPRESSION: Final = 1  # of gzip: 5 times smaller at 100 MB/s; level 9 makes it 7 times, and takes ten times as long


class KinetoSession:
    """Runs from its making to `finish`, which only the thread that made it may call.

    :param torch: the module. What is on a GPU is traced where the program has used one by now.
    """

    def __init__(self, torch: ModuleType) -> None:
        kinds = torch.profiler.ProfilerActivity
        wanted = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_initialized() else [])]
        known = torch.profiler.supported_activities()
        self._torch = torch
        self._profile: Any = torch.profiler._KinetoProfile(activities=[kind for kind in wanted if kind in known])
        with _quiet():
            self._profile.start()
        self.begin = now()
        self.end = 0
        self._pair = clock_pair()

    def finish(self, directory: Path) -> list[tuple[int, int]]:
        """End it and write `directory`/TRACE, whole or not at all.

        :return: a pair (our clock, time of day) from the start and one from the end, ns: the trace has the time of day.
        :raises OSError: the disk is full. torch raises what it likes.
        """
        pairs = [self._pair, clock_pair()]
        self.end = now()
        self._profile.stop()
        plain, packed = directory / "kineto.json.new", directory / (TRACE + ".new")
        try:
            self._profile.export_chrome_trace(str(plain))
            self._profile = None
            _check_whole(plain)
            with open(plain, "rb") as source, gzip.open(packed, "wb", _COMPRESSION) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            packed.replace(directory / TRACE)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        return pairs

    def forget(self) -> None:
        """In a forked child, where the session is not: collect no more."""
        self._torch._C._autograd._enable_record_function(False)


def program_profiles(torch: ModuleType) -> bool:
    """Whether a profiler of torch's runs already."""
    return bool(torch.autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled)


def clock_pair() -> tuple[int, int]:
    """One moment on our clock and as time of day, ns: of some readings the quickest, good to less than a µs."""
    readings = []
    for _ in range(_READINGS):
        before, day, after = now(), time.time_ns(), now()
        readings.append((after - before, (before + after) // 2, day))
    _, ours, day = min(readings)
    return ours, day


@contextmanager
def _quiet() -> Iterator[None]:
    """Kineto reads its log level once, at its first session: it would write lines into the program's output."""
    had = os.environ.get(_LOG_LEVEL)
    os.environ.setdefault(_LOG_LEVEL, _SILENT)
    try:
        yield
    finally:
        if had is None:
            del os.environ[_LOG_LEVEL]


def _check_whole(path: Path) -> None:
    """torch does not say when the disk was full."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(f"{path.name} is cut off: is the disk full?")
