"""Tells how long a step takes with other workers: they need cores, and time to send each batch."""

from __future__ import annotations

import math
from typing import Final

from profiler.diagnose.input import HANDOVER
from profiler.diagnose.model import InputDiagnosis
from profiler.diagnose.rule import Cost, StepCosts

SENDING: Final = 0.7e-3
"""Seconds of CPU time in which a worker sends a batch of two small tensors: it copies each into shared memory, and
pickles the rest. 0.5 to 0.7 ms more than to make them without sending (torch 2.13, one core of a Xeon)."""
WORTH: Final = 1.05
"""Least gain for which other workers are suggested: as of `WORTH_NAMING`."""
_LEAST: Final = 1e-6


def moved_step_time(costs: StepCosts, found: InputDiagnosis, own: Cost, workers: int, granted: float = 0.0) -> float:
    """Seconds of a step, without waits for a core, in which so many workers make the batches that the training process
    makes now. It is as slow as the training process without that work, as the workers, or as all cores that the program
    then gets.

    :param own: what the training process spends on making batches.
    :param granted: as for `least_step_time`.
    """
    batches = found.use.batches or 1.0
    sending, receiving = batches * SENDING, batches * HANDOVER
    alone = max(costs.active - own.seconds + receiving, (own.seconds + sending) / workers)
    # with each start of the loader the training process waits for the first batch
    first = found.use.starts * (found.batch_seconds + SENDING)
    return max(alone, least_step_time(costs, found, sending + receiving, granted)) + first


def least_step_time(costs: StepCosts, found: InputDiagnosis, extra: float = 0.0, granted: float = 0.0) -> float:
    """Seconds that a step takes at least where the program uses its own cores and all free ones, without its waits for
    cores as they were recorded; 0 where it is not known how many cores are free.

    :param extra: seconds of CPU time per step that it needs besides the work of the recorded run.
    :param granted: the share of the time in which a process that is ready to run gets a core, where each of them mostly
        waits for something else: the scheduler gives them their share of busy cores, too, up to a CPU quota.
    """
    used, free, processes = _used_cores(costs), found.use.free_cores, _processes(costs)
    if used is None or free is None:
        return 0.0
    allowed = min(found.cores or 0, costs.number("cpu_quota") or math.inf)
    most = max(used + free / processes, granted * allowed / processes, _LEAST)
    step = (used * costs.seconds + extra) / most
    return step * costs.active / costs.seconds


def quota_step_time(costs: StepCosts) -> float:
    """Seconds that the CPU quota lets a step take at least, however little it waits for; 0 where there is no quota."""
    used, quota = _used_cores(costs), costs.number("cpu_quota")
    return used * costs.seconds * _processes(costs) / quota if used and quota else 0.0


def _used_cores(costs: StepCosts) -> float | None:
    """Cores that a rank uses, with its share of all other processes; None: not measured."""
    used = costs.analysis.value("host_cpu")
    others = (costs.analysis.value("children_cpu") or 0.0) / _processes(costs)
    return None if used is None else used + others


def _processes(costs: StepCosts) -> int:
    return len(costs.analysis.ranks.ranks) if costs.analysis.ranks else 1
