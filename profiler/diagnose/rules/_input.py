"""Tells what the input costs, at which lines, and how long a step takes with other workers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import PurePath
from typing import Any, Final

from profiler.analyse.model.host import LOADER_WORKER, ThreadState
from profiler.analyse.model.input import MARKED_DATA, WAITING_FOR_INDEX, WAITING_FOR_WORKERS, InputPart, LoaderSettings
from profiler.analyse.model.measures import WAIT_CATEGORIES
from profiler.core.syntax import called_functions
from profiler.diagnose.input import HANDOVER, granted_share
from profiler.diagnose.model import MOST, NAMED, InputAdvice, InputDiagnosis
from profiler.diagnose.rule import NOTHING, Claim, Cost, StepCosts, largest_sites, total_seconds
from profiler.diagnose.rules._lines import frame_costs
from profiler.run.model import Site

MOST_WORKERS: Final = 32
"""Workers that a finding suggests at most: each is a process with its own copy of the program's imports."""
_ONE: Final = 0.8
"""Share of the time in loaders from which a finding is about one of them. A choice: the others have a quarter of it."""
SLOW: Final = (
    InputAdvice.USE_WORKERS,
    InputAdvice.CHEAP_BATCHES,
    InputAdvice.UNEVEN,
    InputAdvice.WORKERS_LIMIT,
    InputAdvice.MORE_WORKERS,
    InputAdvice.MORE_CORES,
)
"""Advice where the time of making batches is time of the step."""


def advised(costs: StepCosts, *advice: InputAdvice) -> InputDiagnosis | None:
    """Return what limits the input, where one of these is the advice."""
    return costs.input if costs.input and costs.input.advice in advice else None


def making_claim(costs: StepCosts, names: Collection[str], value: str) -> Claim | None:
    """Claim the loader's time in parts with these names, if they make batches for most of it.

    :param value: name of the value that tells the share.
    """
    found = advised(costs, *SLOW)
    if found is None or input_wait(costs):  # what is computed is not slow then
        return None
    suggested = suggested_workers(costs, found) if found.advice is InputAdvice.USE_WORKERS else None
    if suggested and _items_mostly_wait(costs, input_cost(costs, found, found.making)):
        return None  # items that wait are no cheaper to make: workers wait beside the training
    parts, made = made_parts(costs, found)
    chosen = [part for part in parts if part.name in names]
    whole = sum(part.seconds_per_step for part in parts)
    share = sum(part.seconds_per_step for part in chosen) / whole if whole else 0.0
    if share < MOST:
        return None
    sites = input_sites(costs, chosen)
    loader = main_loader(costs)
    values = {
        "loader_site": loader.site if loader else None,
        "made": found.made_seconds,
        value: share,
        "handover": HANDOVER if found.advice is InputAdvice.CHEAP_BATCHES else None,
        "free": found.use.free_cores if found.advice is InputAdvice.USE_WORKERS and not suggested else None,
        "core_wait": found.use.worker_core_wait if found.advice is InputAdvice.MORE_CORES else None,
    }
    return Claim({"input": made.part(share)}, sites, values, is_most=True)  # cheaper items still cost something


def suggested_workers(costs: StepCosts, found: InputDiagnosis) -> tuple[int, float] | None:
    """Return how many workers to suggest, and the seconds of a step then without waits for a core; None: too little."""
    own = input_cost(costs, found, found.made)
    rest = max(costs.active - own.seconds, 1e-6)
    workers, granted = max(1, (found.cores or 2) - 1), 0.0
    if _items_mostly_wait(costs, own):  # items that wait need no core
        workers = max(workers, min(MOST_WORKERS, math.ceil(round(own.seconds / rest, 3))))
        on_cpu = (costs.analysis.value("host_cpu") or 0.0) * costs.seconds
        granted = granted_share(on_cpu, costs.cost("core").seconds if costs.is_known("core") else None)
    elif found.cores == 1:  # a worker would share the core with the training process
        return None
    after = moved_step_time(costs, found, own, workers, granted)
    return (workers, after) if after * WORTH <= costs.active else None


NO_MORE_WORKERS: Final = (
    "Workers would not help: receiving a batch from one takes about {handover:time}.",
    "Workers would hardly help: they need free cores, and have to send each batch. On average, {free:cores} free.",
    "More workers would not help: those that there are wait for a core {core_wait:share} of the time.",
)
"""Evidence that the work itself must become less."""


def input_wait(costs: StepCosts) -> float:
    """Return the share of the time of making batches that waits for files and sockets, where that is most of it; else
    0."""
    use = costs.analysis.loader
    waits = (use.file_wait or 0.0) + (use.socket_wait or 0.0) if use else 0.0
    return waits if waits >= MOST else 0.0


def input_cost(costs: StepCosts, found: InputDiagnosis, share: float) -> Cost:
    """Return what a share of a step costs that is input, such as the `making` or the `waits` of a diagnosis."""
    whole = found.making + found.inline
    return costs.cost("input").part(share / whole) if whole else NOTHING


_WRITES: Final = frozenset(("dump", "dumps", "print", "write", "write_text", "writelines", "writerow", "writerows"))
"""Functions and methods that write what is no input."""


def prepared_costs(costs: StepCosts) -> dict[str, Cost]:
    """Return what the training thread computes before the model in a step, outside of loaders, by category. Empty where
    other input takes longer or is marked, and beside a device, of which it is not known whether it is busy
    meanwhile."""
    preparation, found = costs.analysis.preparation, costs.input
    marks_input = any(part.name == MARKED_DATA for part in costs.analysis.input)
    if preparation is None or marks_input or costs.has_queue or costs.is_device_unseen:
        return {}
    first = preparation.lines[0] if preparation.lines else preparation.whole.site
    if not _WRITES.isdisjoint(name.rpartition(".")[2] for name in called_functions(first.source)):
        return {}  # such as a log that is written between two steps
    parts = {name: cost for name, cost in frame_costs((preparation.whole,)).items() if name not in WAIT_CATEGORIES}
    inline = input_cost(costs, found, found.inline).seconds if found is not None else 0.0
    return parts if total_seconds(parts) > inline else {}


def making(costs: StepCosts, where: str) -> list[InputPart]:
    """Return the parts in which batches are made, and not waited for, the most seconds first."""
    return [
        part
        for part in costs.inputs(where=where, context="loader")
        if part.name not in (WAITING_FOR_INDEX, WAITING_FOR_WORKERS)
    ]


def made_parts(costs: StepCosts, found: InputDiagnosis) -> tuple[list[InputPart], Cost]:
    """Return the parts in which batches are made, and what all of them together cost."""
    if workers := making(costs, "worker"):
        return workers, input_cost(costs, found, found.made)
    return making(costs, "main process"), input_cost(costs, found, found.making)


def main_loader(costs: StepCosts) -> LoaderSettings | None:
    """Return the loader in which nearly all of the time lies that the training process is in any; None: not known."""
    use = costs.analysis.loader
    return use.loaders[0] if use and use.loaders and use.loaders[0].share >= _ONE else None


def loader_values(costs: StepCosts) -> dict[str, Any]:
    """Return the variable that holds the main loader, where it was made, and its settings, as values of a claim."""
    loader = main_loader(costs)
    if loader is None:
        return {"loader": ""}
    return {
        "loader": loader.variable,
        "loader_site": loader.site,
        "batch_size": loader.batch_size,
        "prefetch": loader.prefetch_factor,
    }


def more_workers_values(costs: StepCosts) -> dict[str, Any]:
    """`loader_values` where more workers are the cure; an IterableDataset may not split itself among them."""
    main, use = main_loader(costs), costs.analysis.loader
    loaders = (main,) if main else use.loaders if use else ()
    is_iterable = any(loader.is_iterable for loader in loaders)
    return loader_values(costs) | ({"loader": None, "dataset": "IterableDataset"} if is_iterable else {})


SPLIT: Final = (
    "The dataset is an {dataset}: each worker reads all of it, unless it splits itself among the workers by "
    "torch.utils.data.get_worker_info()."
)
"""Evidence of what else a change of the number of workers needs."""


def made_sites(costs: StepCosts, sites: tuple[Site, ...] | None = None) -> tuple[Site, ...]:
    """Return the line that made the main loader, then other lines: by default those that take most of the input's
    time."""
    loader = main_loader(costs)
    if sites is None:
        sites = input_sites(costs, sorted(costs.analysis.input, key=lambda part: -part.seconds_per_step))
    return largest_sites([loader.site if loader else None, *sites])


def input_sites(costs: StepCosts, parts: Iterable[InputPart]) -> tuple[Site, ...]:
    """Return the lines with most of the input's time, then those of these parts, often only the begin of a function."""
    parts, others = tuple(parts), costs.sites("input")
    is_made_by_worker = any(part.where == "worker" for part in parts)
    lines = _worker_sites(costs) if is_made_by_worker else others
    functions = {(PurePath(site.file).name, site.function) for site in lines}
    sites = [part.site for part in parts if part.site is not None]
    sites = [site for site in sites if (PurePath(site.file).name, site.function) not in functions]
    return largest_sites([*lines, *sites] or others)


def _worker_sites(costs: StepCosts) -> tuple[Site, ...]:
    """Return the lines at which the workers of loaders make data, the most time first. A forked worker also has the
    line at which the training process started it."""
    threads = costs.analysis.threads
    others = {
        line.site
        for thread in threads
        if thread.process != LOADER_WORKER
        for line in thread.lines
        if not line.categories.get(ThreadState.MAKING_DATA)
    }
    seconds: dict[Site, float] = {}
    for line in (line for thread in threads if thread.process == LOADER_WORKER for line in thread.lines):
        if line.site not in others:
            seconds[line.site] = seconds.get(line.site, 0.0) + line.categories.get(ThreadState.MAKING_DATA, 0.0)
    least = NAMED * sum(seconds.values())
    return largest_sites(site for site in sorted(seconds, key=lambda site: -seconds[site]) if seconds[site] > least)


def _items_mostly_wait(costs: StepCosts, own: Cost) -> bool:
    """Return whether the training process mostly waits while it makes batches, such as for a file: the time of its
    thread off its core, less its other waits. False if that is not known."""
    main = next((thread for thread in costs.analysis.threads if thread.tid == thread.pid), None)
    if main is None or main.on_cpu is None:
        return False
    on_cpu = min(main.on_cpu, costs.analysis.value("host_cpu") or 1.0)  # the first also counts the imports
    others = sum(costs.cost(name).seconds for name in (*WAIT_CATEGORIES, "sync"))
    return (1.0 - on_cpu) * costs.seconds - others >= MOST * own.seconds


# ---------------------------------------------------------------- other workers


SENDING: Final = 0.7e-3
"""Seconds of CPU time in which a worker sends a batch of two small tensors: it copies each into shared memory, and
pickles the rest. 0.5 to 0.7 ms more than to make them without sending (torch 2.13, one core of a Xeon)."""
WORTH: Final = 1.05
"""Least gain for which other workers are suggested: as of `WORTH_NAMING`."""
_LEAST: Final = 1e-6


def moved_step_time(costs: StepCosts, found: InputDiagnosis, own: Cost, workers: int, granted: float = 0.0) -> float:
    """Return the seconds of a step, without waits for a core, in which so many workers make the batches: as slow as the
    training process without that work, as the workers, or as all cores that the program then gets.

    :param own: what the training process spends on making batches.
    """
    batches = found.use.batches or 1.0
    sending, receiving = batches * SENDING, batches * HANDOVER
    alone = max(costs.active - own.seconds + receiving, (own.seconds + sending) / workers)
    # with each start of the loader the training process waits for the first batch
    first = found.use.starts * (found.batch_seconds + SENDING)
    return max(alone, least_step_time(costs, found, sending + receiving, granted)) + first


def least_step_time(costs: StepCosts, found: InputDiagnosis, extra: float = 0.0, granted: float = 0.0) -> float:
    """Return the seconds that a step takes at least on the program's own cores and all free ones, without waits for
    cores; 0: not known.

    :param extra: seconds of CPU time per step that it needs besides the recorded work.
    :param granted: the share of the time in which a process that is ready to run gets a core, where each mostly waits
        for something else: the scheduler gives them their share of busy cores, too, up to a CPU quota.
    """
    used, free, processes = _used_cores(costs), found.use.free_cores, rank_count(costs)
    if used is None or free is None:
        return 0.0
    allowed = min(found.cores or 0, costs.number("cpu_quota") or math.inf)
    most = max(used + free / processes, granted * allowed / processes, _LEAST)
    step = (used * costs.seconds + extra) / most
    return step * costs.active / costs.seconds


def quota_step_time(costs: StepCosts) -> float:
    """Return the seconds that the CPU quota lets a step take at least, however little it waits for; 0 where there is no
    quota."""
    used, quota = _used_cores(costs), costs.number("cpu_quota")
    return used * costs.seconds * rank_count(costs) / quota if used and quota else 0.0


def _used_cores(costs: StepCosts) -> float | None:
    """Cores that a rank uses, with its share of all other processes; None: not measured."""
    used = costs.analysis.value("host_cpu")
    others = (costs.analysis.value("children_cpu") or 0.0) / rank_count(costs)
    return None if used is None else used + others


def rank_count(costs: StepCosts) -> int:
    return len(costs.analysis.ranks.ranks) if costs.analysis.ranks else 1
