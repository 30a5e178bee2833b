"""How a DataLoader is set up: workers, prefetching, starts."""

from __future__ import annotations

import math
from typing import Final

from profiler.analyse.model.finding import Confidence, GainMethod, KnockOut
from profiler.diagnose.input import HANDOVER, are_persistent, granted_share, is_started_for_batches
from profiler.diagnose.model import NAMED, WORTH_NAMING, InputAdvice
from profiler.diagnose.rule import Claim, StepCosts, rule, take
from profiler.diagnose.rules._input import (
    MOST_WORKERS,
    SPLIT,
    WORTH,
    advised,
    input_cost,
    least_step_time,
    loader_values,
    made_sites,
    main_loader,
    making,
    more_workers_values,
    suggested_workers,
)


@rule(
    "no-workers",
    "The training process makes its batches itself",
    (
        "{share:share} of each step goes to making batches, {batch:time} each.",
        "{share:share} of each step goes to making batches: {delayed_batch:time} each, waits for a core included.",
        "{share:share} of each step the device is idle while batches are made, {overlapped_batch:time} each.",
        "Receiving a batch from a worker takes about {handover:time}.",
        "Cores that the program may use: {cores:count}.",
        "On average, {free:cores} free.",
        SPLIT,
    ),
    "Let workers make the batches while the model trains.",
    code="{loader:assignment}DataLoader(..., num_workers={workers:plain}, persistent_workers=True)",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"num_workers": "workers", "persistent_workers": True}},
)
def no_workers(costs: StepCosts) -> Claim | None:
    """The loader's time without that of its sampler, where workers could make the batches meanwhile."""
    found = advised(costs, InputAdvice.USE_WORKERS)
    suggested = suggested_workers(costs, found) if found else None
    if found is None or suggested is None:
        return None
    own, (workers, after) = input_cost(costs, found, found.made), suggested
    waits = costs.cost("core").seconds >= WORTH_NAMING * costs.seconds
    name = "overlapped_batch" if costs.has_queue else "delayed_batch" if waits else "batch"
    return Claim(
        {"input": own},
        made_sites(costs),
        {
            name: found.batch_seconds,
            "handover": HANDOVER,
            "workers": workers,
            "cores": found.cores,
            "free": found.use.free_cores,
            **more_workers_values(costs),
        },
        remaining=max(0.0, after - costs.active + own.seconds),
        method=GainMethod.ESTIMATE,  # what it costs to send and to receive a batch was measured elsewhere
    )


@rule(
    "too-few-workers",
    "The loader has too few workers",
    (
        "The training thread waits for workers {waits:share} of each step.",
        "The workers are busy {busy:share} of the time, and run on a core {cpu:share} of it.",
        "It has {workers:count}, and the program may use this number of cores: {cores:count}.",
        SPLIT,
    ),
    "Use more workers.",
    code="{loader:assignment}DataLoader(..., num_workers={needed:plain})",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"num_workers": "needed"}},
)
def too_few_workers(costs: StepCosts) -> Claim | None:
    """The waits for workers, less what remains with as many workers as help."""
    found = advised(costs, InputAdvice.MORE_WORKERS, InputAdvice.WORKERS_LIMIT)
    if found is None:
        return None
    workers, waits, granted = found.use.workers, input_cost(costs, found, found.waits), 0.0
    work = sum(part.seconds_per_step for part in making(costs, "worker"))
    computing = max(costs.active - waits.seconds, 1e-9)
    needed = max(workers + 1, min(MOST_WORKERS, math.ceil(work / computing)))
    if found.advice is InputAdvice.WORKERS_LIMIT:
        needed = min(needed, (found.cores or 0) - 1)
    else:
        granted = granted_share(found.use.worker_cpu, found.use.worker_core_wait)
    if needed <= workers:
        return None
    after = max(computing, work / needed, least_step_time(costs, found, granted=granted))
    if after * WORTH > costs.active:
        return None
    return Claim(
        {"input": waits},
        made_sites(costs),
        {
            "waits": costs.own_share(found.waits),
            "busy": found.busy,
            "cpu": found.use.worker_cpu,
            "workers": workers,
            "needed": needed,
            "cores": found.cores,
            **more_workers_values(costs),
        },
        remaining=after - computing,
    )


@rule(
    "needless-workers",
    "Workers make batches that the training process could make in less time",
    ("Making a batch takes {made:time}, getting it from a worker {batch:time}.", "A batch has {batch_size:n item}."),
    "Make the batches in the training process, or use larger batches.",
    code="{loader:assignment}DataLoader(..., num_workers=0)",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"num_workers": 0}},
)
def needless_workers(costs: StepCosts) -> Claim | None:
    """The loader's time but for drawing indices and making the batches, and waits for cores that the workers take."""
    found = advised(costs, InputAdvice.NO_WORKERS)
    if found is None:
        return None
    crowded = found.cores is not None and found.use.workers >= found.cores
    own = input_cost(costs, found, found.made)
    made = found.made_seconds * (found.use.batches or 1.0)
    if own.seconds <= made:  # the rest was waiting for a core
        return None
    return Claim(
        {"input": own.part(1.0 - made / own.seconds), **(take(costs, "core") if crowded else {})},
        made_sites(costs, costs.sites("input")),
        {"made": found.made_seconds, "batch": found.batch_seconds, **loader_values(costs)},
        is_least=True,
    )


_SEVERAL: Final = 1.15
"""Share of its time in which a worker runs, or waits for a core, from which it computes with several threads: one
thread does both for 100% of the time at most. The rest is for the accuracy of the clocks."""


@rule(
    "threads-in-workers",
    "Each worker of the loader computes with several threads, and they take the cores from each other",
    (
        "The training thread waits for workers {waits:share} of each step.",
        "The threads of a worker run {cpu:share} of the time, and wait for a core {core_wait:share} of it.",
        "Workers: {workers:count}. Cores that the program may use: {cores:count}.",
    ),
    "Let each worker compute with one thread, by a worker_init_fn of the loader that calls "
    "threadpoolctl.threadpool_limits(1), and cv2.setNumThreads(0) for OpenCV. OMP_NUM_THREADS=1 or "
    "OPENBLAS_NUM_THREADS=1 for the whole program does the same, but call torch.set_num_threads() then, so that the "
    "training process keeps its threads.",
)
def threads_in_workers(costs: StepCosts) -> Claim | None:
    """The time in the loader while threads of its workers wait for cores; that of one thread each is not known."""
    found = costs.input
    use = found.use if found else None
    if found is None or use is None or use.worker_cpu is None or use.worker_core_wait is None or not found.making:
        return None
    if use.worker_core_wait < NAMED or use.worker_cpu + use.worker_core_wait < _SEVERAL:
        return None
    values = {
        "waits": costs.own_share(found.waits + found.around_starts),
        "cpu": use.worker_cpu,
        "core_wait": use.worker_core_wait,
        "workers": use.workers,
        "cores": found.cores,
    }
    claimed = {"input": input_cost(costs, found, found.making)}
    return Claim(claimed, made_sites(costs, ()), values, is_most=True, confidence=Confidence.MEDIUM)


_AHEAD: Final = 8
"""Batches of a worker ahead that a finding suggests at least: four times torch's default. A choice."""


@rule(
    "starved-prefetch",
    "Batches come late although the workers have time",
    (
        "The training thread waits {waits:share} of each step, while workers wait {idle:share} of theirs for work.",
        "Each worker makes {prefetch:n batch} ahead.",
    ),
    "Let workers make more batches ahead: some batches take much longer than others.",
    code="{loader:assignment}DataLoader(..., prefetch_factor={ahead:plain})",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"prefetch_factor": "ahead"}},
)
def starved_prefetch(costs: StepCosts) -> Claim | None:
    """The waits for workers that have time left."""
    found = advised(costs, InputAdvice.LATE)
    if found is None:
        return None
    waits, values = input_cost(costs, found, found.waits), loader_values(costs)
    ahead = max(_AHEAD, 2 * (values.get("prefetch") or 0))
    values |= {"waits": costs.own_share(found.waits), "idle": 1.0 - found.busy, "ahead": ahead}
    # the worker that has most to do still needs this long, however many batches it makes ahead
    needed = max(found.busy, found.use.busiest_worker) * costs.active
    return Claim({"input": waits}, made_sites(costs), values, max(0.0, needed - (costs.active - waits.seconds)))


_STARTING: Final = ("loader start", "the loader itself")
"""Parts of the input in which a loader starts: it draws the order of all items when its first batch is asked for."""


@rule(
    "loader-started-anew",
    "The loader is started again for each batch",
    (
        "{share:share} of each step goes to starting it and to drawing the order of all of its items.",
        "Starts of the loader in each step: {starts:number}.",
    ),
    "Call iter(loader) before the loop, next() on that iterator in each step, and iter() again only when it ends.",
)
def loader_started_anew(costs: StepCosts) -> Claim | None:
    """What the loader itself takes, beside its items and their collation. Workers that start are another rule's."""
    found = costs.input
    if found is None or found.use.workers or not is_started_for_batches(found.use):
        return None
    parts = making(costs, "main process")
    whole = sum(part.seconds_per_step for part in parts)
    own = sum(part.seconds_per_step for part in parts if part.name in _STARTING)
    if not own:
        return None
    cost = input_cost(costs, found, found.making).part(own / whole)
    return Claim({"input": cost}, costs.sites("input"), {"starts": found.use.starts})


@rule(
    "workers-started-anew",
    "The loader's workers are started again and again",
    (
        "Starting workers takes {starts:share} of each step, waiting for their first batches and end {waits:share}.",
        "They are started once in {every:n step}.",
        "Starts of the loader in each step: {anew:number}.",
        "A new loader is made for each start, at {made_anew:place}: persistent_workers=True alone keeps no workers.",
    ),
    "Keep the workers from one epoch to the next: make the loader once, before the epochs, with "
    "persistent_workers=True.",
    code="{loader:assignment}DataLoader(..., persistent_workers=True)  # once, before the epochs",
    knock_out=KnockOut.SETTINGS,
    settings={"loader": {"persistent_workers": "keep"}},
)
def workers_started_anew(costs: StepCosts) -> Claim | None:
    """The starts, the waits for the first batches after them, and for the end of workers."""
    found = advised(costs, InputAdvice.PERSISTENT_WORKERS)
    if found is None:
        return None
    loader = main_loader(costs) or next(iter(found.use.loaders), None)
    if are_persistent(found.use):  # those that are not made anew keep their workers
        loader = next((each for each in found.use.loaders if each.made_anew), loader)
    is_anew = loader is not None and (loader.made_anew or are_persistent(found.use))
    sites = [part.site for part in costs.inputs(where="main process", name="loader start") if part.site]
    return Claim(
        {"input": input_cost(costs, found, min(found.making, found.starts + found.around_starts))},
        made_sites(costs, tuple(sites) or costs.sites("input")),
        {
            "starts": costs.own_share(found.starts),
            "waits": costs.own_share(found.around_starts),
            "every": 1.0 / found.use.starts if 0 < found.use.starts <= 1 else None,
            "anew": found.use.starts if found.use.starts > 1 else None,
            "made_anew": loader.site if loader and is_anew else None,
            "keep": None if is_anew else True,  # the setting alone changes nothing then, also in a trial
            **loader_values(costs),
        },
        is_least=True,  # after a start, the memory of the training process is shared with the workers
    )


@rule(
    "slow-batch-transfer",
    "Receiving batches from workers takes long",
    ("Receiving takes {receives:share} of each step.", "A batch has {batch_size:n item}."),
    "Send fewer and larger tensors in a batch, or smaller types: each tensor is received by itself.",
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
)
def slow_batch_transfer(costs: StepCosts) -> Claim | None:
    """The time in which the training process receives batches."""
    found = advised(costs, InputAdvice.LARGER_BATCHES)
    if found is None:
        return None
    received = input_cost(costs, found, found.receives)
    values = {"receives": costs.own_share(found.receives), **loader_values(costs)}
    return Claim({"input": received}, made_sites(costs, costs.sites("input")), values)
