"""Limits on the use of a machine by a trainer, torch's switches, the memory of devices, and the best batch size.

torch is imported only when a function needs a device: settings alone cost nothing.
"""

from __future__ import annotations

from reference_trainer.performance.apply import apply, autocast, emptying
from reference_trainer.performance.batch_size import Probe, get_optimal_batch_size, probe_batch_sizes
from reference_trainer.performance.config import PRECISIONS, PerformanceConfig, add_options, from_options, refuse
from reference_trainer.performance.memory import MemoryStats, get_memory_stats

__all__ = [
    "PRECISIONS",
    "MemoryStats",
    "PerformanceConfig",
    "Probe",
    "add_options",
    "apply",
    "autocast",
    "emptying",
    "from_options",
    "get_memory_stats",
    "get_optimal_batch_size",
    "probe_batch_sizes",
    "refuse",
]
