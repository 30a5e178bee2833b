"""The machine's conditions under which a program is recorded: quiet, busy, a CPU quota, or stopped by a signal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.clinic.case import Case

QUIET, BUSY, QUOTA, STOPPED = "quiet", "busy", "quota", "stopped"
CONDITIONS: Final = (QUIET, BUSY, QUOTA, STOPPED)
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_PERIOD_US: Final = 100_000
_QUOTA: Final = 0.6
"""Cores that the group may use: less than a program that computes in one thread needs."""
STOPPED_AFTER_S: Final = 8.0
"""When a program that ends by itself is stopped: in the middle of its training, after its imports."""
_LOOP: Final = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(1_000_000))"


class NotPermittedError(Exception):
    """This machine does not let us make the condition; the message is the reason."""


def has_condition(case: Case, condition: str) -> bool:
    """Whether a case is tried under a condition: all quiet and busy, few under a quota or stopped."""
    if case.is_cuda:  # counts do not depend on the machine
        return condition == QUIET
    if condition == STOPPED:
        return not case.stop_after and not case.exit_code and case.ranks == 1
    return True


@contextmanager
def make_condition(name: str) -> Iterator[tuple[str, ...]]:
    """Set up a condition, and take it away afterwards; the words with which a command in it begins.

    :raises NotPermittedError: this machine does not permit it.
    """
    if name == BUSY:
        loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in os.sched_getaffinity(0)]
        try:
            yield ()
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
    elif name == QUOTA:
        with _quota_group() as group:
            yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    else:
        yield ()


@contextmanager
def _quota_group() -> Iterator[Path]:
    quota, name = round(_QUOTA * _PERIOD_US), f"clinic-{os.getpid()}"
    if (_V1 / "cpu.cfs_quota_us").exists():
        group, settings = _V1 / name, {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    else:
        group, settings = _V2 / name, {"cpu.max": f"{quota} {_PERIOD_US}"}
    try:
        group.mkdir()
        for file, value in settings.items():
            (group / file).write_text(value)
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise NotPermittedError(f"no control group with a CPU quota can be made: {error}") from None
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    for _ in range(50):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)  # the kernel lets go of a group some time after its last process
