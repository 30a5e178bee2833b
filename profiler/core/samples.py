"""Names, units and meaning of what the recorder samples (the `samples` table): shared by writer and reader."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class BlockedIn(IntEnum):
    """The system call in which a thread was blocked at one moment."""

    NOTHING = 0
    """It ran, or could have run."""
    TIMED_FUTEX = 1
    """A wait with a time limit: Python waits for the GIL in this way, 5 ms each time."""
    FUTEX = 2
    """A wait without a time limit: a lock, or a condition of native code."""
    SLEEP = 3
    OTHER = 4
    OPENMP = 5
    """A plain futex, as GNU's OpenMP uses it where its threads wait for each other."""
    FILE = 6
    """It reads or opens a file, or waits for a page of a mapped one."""
    SOCKET = 7
    """It receives from a socket, or connects one."""


# name: (unit, meaning). Values named *_s, ctx_* and peak_* are cumulative or high-water marks (take differences), but
# those of stacks.* are each of a window.
# pid and tid say whose: a thread, a process (tid 0), the machine (both 0); for gpu.* tid is the device's index.
SAMPLE_NAMES: Final[dict[str, tuple[str, str]]] = {
    "process.cpu": ("cores", "mean CPU use of the process since its sample before"),
    "process.cpu_s": ("s", "CPU time of the process so far, user and system; ticks at 10 ms"),
    "process.rss": ("bytes", "resident memory"),
    "process.peak_rss": ("bytes", "high-water mark of the resident memory"),
    "process.anonymous": ("bytes", "resident memory that is not of files: the page cache is not in it"),
    "process.threads": ("threads", "number of threads"),
    "process.ctx_voluntary": ("switches", "context switches so far because the process waited"),
    "process.ctx_involuntary": ("switches", "context switches so far because the kernel took the CPU away"),
    "thread.cpu_s": ("s", "CPU time of the thread so far"),
    "thread.wait_s": ("s", "time so far in which the thread could have run and waited for a core"),
    "thread.system_s": ("s", "CPU time of a main thread so far in the kernel"),
    "thread.minor_faults": ("faults", "pages so far that the kernel gave a main thread at their first use"),
    "thread.blocked_in": ("", "what a main thread was blocked in at that moment: a value of BlockedIn"),
    "group.throttled_s": ("s", "time so far that the CPU quotas of the program's groups cost, summed over the cores"),
    "machine.cpu_util": ("share", "share of all cores in use, 0..1, since the sample before"),
    "machine.low_priority": (
        "share",
        "share of all cores, 0..1, used by programs whose nice value is above 0; none where the program has one itself",
    ),
    "machine.steal": ("share", "share of CPU time taken by other virtual machines, 0..1"),
    "machine.load": ("tasks", "load average of the last minute"),
    "machine.available": ("bytes", "memory that programs can still get"),
    "gpu.util": ("share", "share of the last NVML interval with a kernel running, 0..1"),
    "gpu.memory_used": ("bytes", "device memory in use, of all programs"),
    "gpu.power": ("W", "power drawn"),
    "gpu.clock_sm": ("Hz", "clock of the multiprocessors"),
    "gpu.clock_memory": ("Hz", "clock of the memory"),
    "gpu.throttle": ("bits", "reasons why the clocks are held down: NVML's bit mask"),
    "gpu.pcie_rx": ("bytes/s", "received over PCIe, mean over 20 ms"),
    "gpu.pcie_tx": ("bytes/s", "sent over PCIe, mean over 20 ms"),
    "gpu.temperature": ("degC", "temperature of the chip"),
    "stacks.period_s": ("s", "mean time between stack samples in the window that ends here"),
    "stacks.clock_slack_s": ("s", "how far the times of that window's samples may be off"),
    "stacks.preempted_s": (
        "s",
        "time that samples of that window took from the main thread of the process, on its core",
    ),
    "stacks.gil_window_s": ("s", "length of the window that ends here, in which only the GIL's holder was seen"),
    "stacks.gil_ticks": ("samples", "how often that window looked for a holder"),
}

BLOCKED_IN: Final = "thread.blocked_in"
THREAD_NAME: Final = "thread.name:"
"""Prefix of a sample (value 1) that holds the operating system's name of its thread."""
SOURCE_LINE: Final = "source.line:"
"""Prefix of a sample (value 1) of older runs that holds the text of a line of the program, as `FILE:LINE:TEXT`."""
