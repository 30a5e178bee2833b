"""Registers what is measured: names, units and meaning of metrics, counters and samples.

The name of a metric is its key in `Analysis.measures` and in the JSON reports. Values are in base units (see
`profiler.core.units`); programs may count and gauge things of their own, whose labels come from their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

PER_STEP: Final = "_per_step"
"""Ending of the metric of a counter: `syncs` are counted, `syncs_per_step` is their mean over the measured steps."""
RATES: Final = ("tokens_per_s", "steps_per_s")
"""The metrics of speed. Where steps do not report how many tokens they process, steps per second is the rate."""
_EXACT_TO: Final = 0.02
"""Steps hold a few tokens more or less, so the mean over other steps counts a little more or less."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One measure of a run."""

    name: str
    label: str
    """The title of a row in a table."""
    unit: str
    is_share: bool = False
    """A value between 0 and 1 that is shown as a percentage."""
    is_final: bool = False
    """The last value of a run counts, not its mean: what a model has learned."""


@dataclass(frozen=True, slots=True)
class Counter:
    """Events of one kind that a program causes in its steps; fewer are better for all of these."""

    name: str
    singular: str
    plural: str
    """For an amount in bytes or ns, `singular` names the thing that is measured, and `plural` the amount itself.
    Neither names the period, which `counter_period` does."""
    label: str = ""
    """The title of the row with the mean per step; empty for what is not counted per step."""
    needs_device: bool = False
    """Only a device can be asked for these: a run without one has no such count, not even 0."""
    gated: bool = False
    """`check` compares it without being told to."""

    @property
    def unit(self) -> str:
        """bytes, ns, or nothing for a plain count."""
        return counter_unit(self.name)

    def noun(self, amount: float = 2.0) -> str:
        """Return the name of what is counted, in the singular or plural that `amount` requires."""
        return self.singular if self.unit or math.isclose(abs(amount), 1) else self.plural


def counter_unit(name: str) -> str:
    """Return the unit of a counter, by the ending of its name: bytes, ns, or nothing for a plain count."""
    return next((unit for unit in ("bytes", "ns") if name.endswith(f"_{unit}")), "")


STARTUP: Final = "startup_"
EVALUATION: Final = "evaluation_"
CHECKPOINT: Final = "checkpoint_"
ONCE: Final = "once_"
LOADER: Final = "loader_"
_PERIODS: Final = {
    STARTUP: "until the first step ended",
    EVALUATION: "per evaluation",
    CHECKPOINT: "per checkpoint",
    ONCE: "in work that occurs once",
    LOADER: "per batch in loader workers",
}
"""Beginning of the counters of a period that is no part of the counted steps -> what an amount belongs to."""
NUMBER: Final = "number"
"""Ending of the counters of how many evaluations or checkpoints there were in a step."""


def counter_period(name: str) -> str:
    """Return what an amount of a counter belongs to: `per step`, `per evaluation`, `until the first step ended`."""
    period = next((text for prefix, text in _PERIODS.items() if name.startswith(prefix)), "per step")
    return "per step" if name.endswith(NUMBER) else period


_MEASURES: Final = (
    Metric("tokens_per_s", "Throughput", "tokens/s"),
    Metric("steps_per_s", "Steps a second", "steps/s"),
    Metric("step_time", "Time of a step", "s"),
    Metric("step_time_p50", "Time of a step, median", "s"),
    Metric("step_time_p95", "Time of a step, 95th percentile", "s"),
    Metric("steps", "Steps measured", "steps"),
    Metric("device_utilization", "Device busy", "1", is_share=True),
    Metric("peak_share", "Share of the card's peak", "1", is_share=True),
    Metric("gc_time", "Garbage collections, per step", "s"),
    Metric("host_cpu", "Host CPU", "cores"),
    Metric("children_cpu", "CPU of its other processes", "cores"),
    Metric("device_cpu", "Device CPU", "cores"),
    Metric("cpu_time", "CPU time of a step", "s"),
    Metric("without_core", "Waiting for a core that others had", "1", is_share=True),
    Metric("peak_memory", "Peak memory", "bytes"),
    Metric("machine_cpu", "CPU of the machine, all cores", "cores"),
    Metric("memory_growth", "Growth of memory per step", "bytes/step"),
    Metric("page_faults", "Pages of memory given at first use, per step", "pages"),
    Metric("kernel_time", "Time of the stepping thread in the kernel, per step", "s"),
    Metric("process_memory", "Memory of the program", "bytes"),
    Metric("loss", "Loss", "1"),
    Metric("accuracy", "Accuracy", "1", is_share=True),
    Metric("heldout_loss", "Loss, held-out text", "1", is_final=True),
    Metric("heldout_accuracy", "Accuracy, held-out text", "1", is_share=True, is_final=True),
)
# fmt: off
_OF_STEPS: Final = (
    Counter("syncs", "sync", "syncs", "Syncs per step", needs_device=True, gated=True),
    Counter("might_sync", "read that may wait on a GPU", "reads that may wait on a GPU",
            "Reads that may wait on a GPU per step"),
    Counter("h2d", "H2D copy", "H2D copies", "H2D copies per step", needs_device=True, gated=True),
    Counter("d2h", "D2H copy", "D2H copies", "D2H copies per step", needs_device=True, gated=True),
    Counter("d2d", "D2D copy", "D2D copies", "D2D copies per step"),
    Counter("h2d_bytes", "H2D copies", "bytes of H2D copies", "H2D bytes per step", needs_device=True, gated=True),
    Counter("d2h_bytes", "D2H copies", "bytes of D2H copies", "D2H bytes per step", needs_device=True, gated=True),
    Counter("d2d_bytes", "D2D copies", "bytes of D2D copies", "D2D bytes per step"),
    Counter("allocations", "allocation", "allocations", "Allocations per step", needs_device=True, gated=True),
    Counter("frees", "free", "frees", "Frees per step"),
    Counter("launches", "launch", "launches", "Launches per step", needs_device=True, gated=True),
    Counter("memsets", "memset", "memsets", "Memsets per step"),
    Counter("crossings", "host-native crossing", "host-native crossings", "Host-native crossings per step", gated=True),
    Counter("compile_ns", "compilation", "time of compilation", "Compile time per step"),
    Counter("debug_syncs", "sync that torch warned of", "syncs that torch warned of",
            "Syncs that torch warned of, per step"),
    Counter("tokenized", "tokenized text", "tokenized texts", "Tokenized texts per step", gated=True),
    Counter("tokenized_samples", "tokenized sample", "tokenized samples", "Tokenized samples per step", gated=True),
    Counter("zero_fills", "filling of gradients with zeros", "fillings of gradients with zeros",
            "Fillings of gradients with zeros, per step"),
    Counter("zero_fill_ns", "filling of gradients with zeros", "time of filling gradients with zeros",
            "Time of filling gradients with zeros, per step"),
    Counter("repeated_gradient_syncs", "repeated synchronization of gradients",
            "repeated synchronizations of gradients", "Repeated synchronizations of gradients, per step"),
    Counter("recompilations", "recompilation", "recompilations", "Recompilations per step", gated=True),
    Counter("graph_breaks", "graph break", "graph breaks", "Graph breaks per step", gated=True),
    Counter("operators", "operator", "operators", "Operators per step", gated=True),
    Counter("flops", "floating-point operation", "floating-point operations", "Floating-point operations per step",
            gated=True),
    Counter("allocated_bytes", "results of operators", "bytes of results of operators",
            "Bytes that operators allocate per step", gated=True),
    Counter("growth_bytes", "memory that stays in use", "growth of memory in use", "Growth of memory in use per step",
            gated=True),
    Counter("peak_bytes", "memory in use at its peak", "peak of memory in use", "Peak of memory in use", gated=True),
    Counter("collectives", "collective", "collectives", "Collectives per step", gated=True),
    Counter("collective_bytes", "collectives", "bytes of collectives", "Bytes of collectives per step", gated=True),
    Counter("files", "file opened for writing", "files opened for writing", "Files opened for writing per step",
            gated=True),
)
# fmt: on
_OF_RARE: Final = (
    "operators",
    "flops",
    "peak_bytes",
    "syncs",
    "h2d",
    "d2h",
    "tokenized",
    "collectives",
    "files",
)  # fmt: skip
COUNTED_IN: Final = {
    STARTUP: ("operators", "allocated_bytes", "peak_bytes", "tokenized"),
    EVALUATION: _OF_RARE,
    CHECKPOINT: _OF_RARE,
    ONCE: ("operators", "syncs", "files"),
    LOADER: ("operators", "allocated_bytes"),
}
"""Beginning of the counters of a period -> the counters of steps that it has too."""


def _of_periods() -> Iterator[Counter]:
    """The counters of evaluations, checkpoints and loader workers may not rise. Others, and the peak of memory, are
    informational."""
    by_name = {counter.name: counter for counter in _OF_STEPS}
    for prefix, names in COUNTED_IN.items():
        for name in names:
            gated = prefix in (EVALUATION, CHECKPOINT, LOADER) and name != "peak_bytes"
            yield replace(by_name[name], name=f"{prefix}{name}", label="", needs_device=False, gated=gated)
    for prefix, noun in ((EVALUATION, "evaluation"), (CHECKPOINT, "checkpoint")):
        yield Counter(f"{prefix}{NUMBER}", noun, f"{noun}s", gated=True)


COUNTERS: Final = (*_OF_STEPS, *_of_periods())
_COUNTERS_BY_NAME: Final = {counter.name: counter for counter in COUNTERS}
METRICS: Final = (
    *_MEASURES,
    *(Metric(f"{one.name}{PER_STEP}", one.label, f"{one.unit or '1'}/step") for one in _OF_STEPS),
)
"""All of them, in the order in which reports show them."""
_METRICS_BY_NAME: Final = {metric.name: metric for metric in METRICS}
_POSITIONS: Final = {metric.name: position for position, metric in enumerate(METRICS)}


def find_counter(name: str) -> Counter | None:
    """Return the counter of that name, or None for one that a program counts of its own accord."""
    return _COUNTERS_BY_NAME.get(name)


def find_metric(name: str) -> Metric | None:
    """Return the metric of that name, or None for one that a program gauges or counts of its own accord."""
    return _METRICS_BY_NAME.get(name)


def label(name: str) -> str:
    """Return the title of a metric's row; where the registry lacks it, its name as words."""
    metric = _METRICS_BY_NAME.get(name)
    if metric is not None:
        return metric.label
    return name.replace(f"_ns{PER_STEP}", f"_time{PER_STEP}").replace("_", " ").capitalize()


def is_share(name: str) -> bool:
    """Tell whether the metric lies between 0 and 1 and reads better as a percentage."""
    metric = _METRICS_BY_NAME.get(name)
    return metric is not None and metric.is_share


def is_final(name: str) -> bool:
    """Tell whether the last value of a run counts, and not its mean."""
    metric = _METRICS_BY_NAME.get(name)
    return metric is not None and metric.is_final


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in the order of the registry; those that it lacks follow by name."""
    return tuple(sorted(set(names), key=lambda name: (_POSITIONS.get(name, len(METRICS)), name)))


def is_constant(name: str, low: float, high: float) -> bool:
    """Tell whether the ends of an interval say nothing: they are equal, or those of a counter differ by where runs
    ended."""
    return low == high or (name.endswith(PER_STEP) and high < low * (1 + _EXACT_TO))


# ---------------------------------------------------------------- the table of samples


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
