"""Names of measures and categories in plain words, and the tone of each category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiler.analyse.model import DEVICE_CATEGORIES, HOST_CATEGORIES
from profiler.report.subject import View

SHARES = frozenset({"device_utilization", "accuracy", "heldout_accuracy"})
"""Measures between 0 and 1 that read better as percentages."""

LABELS: Mapping[str, str] = {
    "tokens_per_s": "Throughput",
    "steps_per_s": "Steps a second",
    "step_time": "Time of a step",
    "step_time_p50": "Time of a step, median",
    "step_time_p95": "Time of a step, 95th percentile",
    "steps": "Steps measured",
    "device_utilization": "Device busy",
    "host_cpu": "Host CPU",
    "children_cpu": "CPU of its other processes",
    "device_cpu": "Device CPU",
    "peak_memory": "Peak memory",
    "machine_cpu": "CPU of the machine, all cores",
    "process_memory": "Memory of the program",
    "loss": "Loss",
    "accuracy": "Accuracy",
    "heldout_loss": "Loss, held-out text",
    "heldout_accuracy": "Accuracy, held-out text",
    "syncs_per_step": "Syncs per step",
    "would_sync_per_step": "Calls that would sync on a GPU, per step",
    "h2d_per_step": "H2D copies per step",
    "d2h_per_step": "D2H copies per step",
    "d2d_per_step": "D2D copies per step",
    "h2d_bytes_per_step": "H2D bytes per step",
    "d2h_bytes_per_step": "D2H bytes per step",
    "d2d_bytes_per_step": "D2D bytes per step",
    "allocations_per_step": "Allocations per step",
    "frees_per_step": "Frees per step",
    "launches_per_step": "Launches per step",
    "memsets_per_step": "Memsets per step",
    "crossings_per_step": "Host-native crossings per step",
}

CATEGORY_TONES: Mapping[str, str] = {
    "input": "c1",
    "sync": "c2",
    "copy": "c3",
    "launch": "c4",
    "framework": "c5",
    "compute": "c6",
    "log": "c7",
    "checkpoint": "c8",
    "python": "c9",
    "unattributed": "c10",
    "communication": "c5",
    "idle": "idle",
}
"""The host's and the device's categories; the same word has the same tone in both."""

MEANINGS: Mapping[str, str] = {
    "input": "waiting for data, tokenization",
    "sync": "blocked until the device, or a worker, finished",
    "copy": "in a copy call, not blocked",
    "launch": "other calls toward the device",
    "framework": "inside the framework's operators",
    "compute": "operators that are the work itself",
    "log": "logging",
    "checkpoint": "writing checkpoints",
    "python": "the program's own Python",
    "unattributed": "nothing was seen",
    "communication": "between devices",
    "idle": "nothing to do",
}


def label(name: str) -> str:
    """A measure's name in words; of an unknown one, its own name."""
    readable = name.replace("_ns_per_step", "_time_per_step").replace("_", " ")
    return LABELS.get(name) or readable.capitalize()


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order of LABELS, unknown ones after them by name."""
    known = list(LABELS)
    return tuple(sorted(set(names), key=lambda name: (known.index(name) if name in LABELS else len(known), name)))


def categories(views: Iterable[View], *, device: bool = False) -> tuple[str, ...]:
    """The categories that any side knows, in their standard order."""
    standard = DEVICE_CATEGORIES if device else HOST_CATEGORIES
    found = {
        name for view in views for name in (view.any_detail.device_breakdown if device else view.any_detail.breakdown)
    }
    return (*(name for name in standard if name in found), *sorted(found.difference(standard)))


def tone(category: str) -> str:
    """Tone of a category."""
    return CATEGORY_TONES.get(category, "c8")
