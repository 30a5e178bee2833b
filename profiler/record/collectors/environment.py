"""Records the machine, the versions, the commit and the settings that change how fast a program runs."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from profiler import __version__
from profiler.core.facts import CHANGED, UNKNOWN_CHANGES
from profiler.core.git import read_git
from profiler.record import limits
from profiler.record.collector import Context
from profiler.run.model import CollectorStatus
from profiler.run.tables import LEVELS

PACKAGES: Final = (
    "torch", "numpy", "scipy", "numba", "numba-cuda", "llvmlite", "sentencepiece", "triton", "nvidia-cudnn-cu12",
    "py-spy", "psutil", "nvidia-ml-py",
)  # fmt: skip
"""Distributions whose version may change a result."""
VARIABLES: Final = (
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES",
    "KMP_AFFINITY", "KMP_BLOCKTIME", "MALLOC_CONF", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS",
    "NCCL_ALGO", "NCCL_PROTO",
    "NUMBA_DISABLE_JIT", "NUMBA_ENABLE_CUDASIM", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "OMP_NUM_THREADS",
    "OMP_PROC_BIND", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM", "TORCH_COMPILE_DISABLE", "WORLD_SIZE",
)  # fmt: skip
"""The only environment variables that are recorded: settings, never secrets."""
_GIT_TIMEOUT_S, _STATUS_TIMEOUT_S = 5.0, 1.0
"""Before the program starts. For its status, git may have to read every file of a large repository."""

_STATUS: Final = ("status", "--porcelain", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
"""For renames git would read the content of files, and within a submodule it would follow that one's configuration. A
submodule that has another commit checked out is a change all the same."""


class EnvironmentCollector:
    """Works before the target starts, so it costs the target nothing."""

    name = "environment"
    levels = LEVELS
    start_order = 3

    def available(self) -> str | None:
        return None

    def describe(self) -> Mapping[str, Any]:
        begin = time.thread_time()
        fields = {"host": host_facts(), "versions": versions(), "git_commit": git_commit(Path.cwd())}
        self._cost = time.thread_time() - begin
        return fields

    def start(self, context: Context) -> None:
        """Everything was recorded before."""

    def stop(self) -> CollectorStatus:
        return CollectorStatus(self.name, "ok", records=1, cost_s=self._cost)


def host_facts() -> dict[str, Any]:
    """The machine, without its name. `cores` are those that this process may use; `cpu_quota` is how many cores its
    control groups allow, and `memory_limit` how many bytes of memory."""
    return {
        "cpu": _cpu_model() or platform.processor() or platform.machine(),
        "cores": limits.cores(),
        "cpu_quota": limits.cpu_limit(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_limit": limits.memory_limit(),
        "os": _os_name(),
        "kernel": platform.release(),
        "governor": limits.governor() or None,
        "versions_of": "the recorder's Python; the target may have another",
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def versions() -> dict[str, str]:
    """Versions of the recorder's interpreter and packages, without importing them."""
    versions = {"python": platform.python_version(), "profiler": __version__}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def git_commit(directory: Path) -> str | None:
    """The commit checked out in `directory`; None where there is none.

    `CHANGED` follows it where tracked files differ from it, `UNKNOWN_CHANGES` where git did not tell in time.
    """
    head = read_git(directory, ["rev-parse", "HEAD"], _GIT_TIMEOUT_S)
    if not head:
        return None
    changed = read_git(directory, _STATUS, _STATUS_TIMEOUT_S)
    return head + (UNKNOWN_CHANGES if changed is None else CHANGED * bool(changed))


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _cpu_model() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    return ""


PLUGIN = EnvironmentCollector
