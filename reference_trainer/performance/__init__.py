"""Limits on the use of a machine by a trainer, torch's switches, and the memory of devices.

torch is imported only when a function needs a device: settings alone cost nothing.
"""

from __future__ import annotations

from reference_trainer.performance.apply import apply, autocast, emptying
from reference_trainer.performance.config import (
    PRECISIONS,
    PerformanceConfig,
    add_options,
    from_options,
    perf_config,
    refuse,
)
from reference_trainer.performance.memory import get_memory_stats, get_optimal_batch_size, memory_of

__all__ = [
    "PRECISIONS",
    "PerformanceConfig",
    "add_options",
    "apply",
    "autocast",
    "emptying",
    "from_options",
    "get_memory_stats",
    "get_optimal_batch_size",
    "memory_of",
    "perf_config",
    "refuse",
]
