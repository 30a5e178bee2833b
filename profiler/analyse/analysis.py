"""Analyses a run: `analyse(run)` calls every other module of this package once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from profiler.analyse.figures import flame_graph
from profiler.analyse.intervals import Floats
from profiler.analyse.ledger import DeviceRecord, make_ledger
from profiler.analyse.ledger_steps import RankRecord
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import IdleBlame
from profiler.analyse.model.host import LineCost
from profiler.analyse.model.measures import (
    CORELESS_CATEGORIES,
    UNATTRIBUTED,
    Measure,
    Missing,
    Topic,
)
from profiler.analyse.model.ranks import RankLedger
from profiler.analyse.rank_ledger import (
    MAY_BE_WAITS,
    MAY_WAIT_FOR_DEVICE,
    RankTime,
    collective_waits,
    rank_ledger,
    with_rank_waits,
)
from profiler.analyse.ranks import RankSteps, rank_steps
from profiler.analyse.replay import Replay
from profiler.analyse.sampling.attribute import host_time
from profiler.analyse.sampling.lines import (
    library_functions,
    line_costs,
    made_objects,
    operator_lines,
    startup_teardown,
    table_gradients,
)
from profiler.analyse.sampling.phases import phases
from profiler.analyse.sampling.places import find_driver, preparation
from profiler.analyse.sampling.spikes import one_offs, set_apart, spikes
from profiler.analyse.sampling.stacks import Stacks, has_hooked_steps
from profiler.analyse.sampling.stages import stage_costs, stage_spans, stage_times
from profiler.analyse.sampling.threads import thread_activities
from profiler.analyse.timing.breakdown import (
    NO_OPERATORS,
    Strip,
    breakdown,
    device_breakdown,
    device_parts,
    device_warnings,
    float32_product_share,
    kernel_times,
    no_queue_reason,
    within_blocked,
)
from profiler.analyse.timing.counters import (
    batch_curve,
    call_sites,
    counted_unit,
    counters,
    gauges,
    steady_launches,
    throughput,
)
from profiler.analyse.timing.host_timeline import CODE, HostTimeline, full_timeline, memory_fills
from profiler.analyse.timing.idle import idle_blame, split_off_core
from profiler.analyse.timing.input import input_measures, input_parts, loader_use
from profiler.analyse.timing.resources import peak_share, recording_seconds, resources, series
from profiler.analyse.timing.scheduler import step_delays, waits_without_core
from profiler.analyse.timing.warnings import contradictions, run_warnings
from profiler.analyse.window import (
    LEVEL_LIGHT,
    Window,
    device_kind,
    device_window,
    job_size,
    rank_windows,
    ranks_of_few_steps,
)
from profiler.core.errors import Notice, ProfilerError
from profiler.run.model import Run

MANY_IN_RECORDER: Final = 0.1
"""Share of the samples from which leaving them out is a warning: time without a known cure may lead a verdict from a
tenth of a step on."""


def analyse(run: Run) -> Analysis:
    """The results of `run`, without a verdict: `profiler.diagnose` adds that. Never fails for lack of data.

    :raises ProfilerError: the program was counted, so that the run has counts and no times.
    """
    if run.info.is_counted:
        raise ProfilerError(f"{run.path}: a run that counts has no times; `diagnose {run.path}` prints them")
    run = set_apart(run)
    hooked, stacks, steps = has_hooked_steps(run), Stacks(run), rank_steps(run, rank_windows(run))
    window = steps.analysed
    few_steps = ranks_of_few_steps(run, steps.windows)
    has_ranks = len(window) > 0 and (len(steps.windows) > 1 or bool(few_steps))
    records = [_record(stacks, steps, each) for each in steps.windows]
    record = records[steps.windows.index(window)]
    host, strip, samples, stages = record.host, record.strip, record.samples, record.stages
    operators = operator_lines(stacks)
    lines = line_costs(stacks, samples, operators)
    host_breakdown = breakdown(window, strip, len(host.calls) if host else 0)
    on_device = device_window(run, window)
    device = device_breakdown(run, on_device)
    on_host = host if on_device is window or host is None else full_timeline(run, on_device)
    idle, no_blame = _idle(run, window, on_device, on_host, strip)
    flame, no_flame = flame_graph(stacks, window)
    sites = call_sites(run, window, with_operations=hooked)
    measures = _measures(run, window)
    lacking = {Topic.IDLE_BLAME: no_blame, Topic.FLAME_GRAPH: no_flame}
    lacking[Topic.CALL_SITES] = None if sites else _no_sites(run, window)
    missing = (
        *_missing_parts(Topic.HOST_BREAKDOWN, host_breakdown),
        *_missing_parts(Topic.DEVICE_BREAKDOWN, device),
        *(Missing(topic, reason) for topic, reason in lacking.items() if reason),
        *(Missing(Topic.MEASURE, measure.reason, name) for name, measure in measures.items() if measure.reason),
        *_missing_collectors(run),
    )
    warnings = (
        *run_warnings(run, window),
        *_strip_warnings(strip),
        *_sample_warnings(stacks, window),
        *contradictions(run, window),
        *device_warnings(run, on_device),
    )
    return Analysis(
        info=run.info,
        measures=measures,
        breakdown=host_breakdown,
        device_breakdown=device,
        device_parts=device_parts(run, on_device),
        kernels=kernel_times(run, on_device),
        float32_products=float32_product_share(run, on_device),
        memory_fills=memory_fills(run, on_device) if run.is_trace else (0.0, 0.0),
        steady_launches=steady_launches(run, window),
        idle=idle,
        call_sites=sites,
        series=series(run, window),
        flame=flame,
        missing=missing,
        warnings=warnings,
        threads=thread_activities(stacks),
        step=run.step,
        lines=tuple(replace(line, categories=_measured(line.categories, host_breakdown)) for line in lines),
        library=library_functions(stacks, samples),
        blocked=_blocked(stacks, window),
        operators=operators,
        tables=table_gradients(stacks),
        made=made_objects(stacks),
        preparation=preparation(stacks, samples, stages, operators),
        recording=recording_seconds(run, window) if hooked else 0.0,
        driver=find_driver(stacks, samples),
        input=tuple(record.inputs),
        loader=loader_use(run, window),
        batches=batch_curve(run, window),
        phases=phases(stacks, window, host, samples, stages) if host and hooked else (),
        stages=stage_times(stacks, window, stages) if hooked else (),
        startup_teardown=startup_teardown(stacks, window) if hooked else (),
        stage_costs=stage_costs(window, stages, _core_waits(strip)) if hooked and strip else {},
        spikes=spikes(stacks, window, stages, samples),
        one_offs=one_offs(stacks, window, samples),
        results=run.results,
        ranks=replace(_rank_ledger(stacks, steps, records, lines), few_steps=few_steps) if has_ranks else None,
        path=run.path,
        replay=_replay(run, on_device, on_host, strip),
        ledger=make_ledger(stacks, records, window, DeviceRecord(on_device, device, idle)),
    )


def _measures(run: Run, window: Window) -> dict[str, Measure]:
    measures = (
        gauges(run, window)
        | counters(run, window)
        | resources(run, window)
        | throughput(window, counted_unit(run.info))
        | input_measures(run, window)
    )
    return measures | peak_share(run.info.facts, measures["tokens_per_s"])


def _core_waits(strip: Strip) -> Floats:
    """ns of each step in which the thread could have run and had no core."""
    return np.asarray(strip.ns[:, [CODE[name] for name in CORELESS_CATEGORIES]].sum(axis=1), np.float64)


def _blocked(stacks: Stacks, window: Window) -> float | None:
    """Seconds of a step in which the stepping thread could not run."""
    time = stacks.thread_time(window) if len(window) else None
    return window.per_step(time.blocked) if time else None


def _rank_ledger(
    stacks: Stacks, steps: RankSteps, records: Sequence[RankRecord], lines: tuple[LineCost, ...]
) -> RankLedger:
    """The ledger of all ranks.

    :param lines: of the rank that stands for the run.
    """
    times, run = [], stacks.run
    for record in records:
        window = record.window
        of_lines = lines if window is steps.analysed else line_costs(stacks, record.samples)
        device = device_breakdown(run, device_window(run, window)) if len(run.activities) else {}
        seconds = {name: measure.value for name, measure in device.items() if measure.value is not None}
        times.append(RankTime(record.strip, of_lines, seconds))
    ledger_of_ranks = rank_ledger(steps, times, job_size(run, steps.windows))
    return replace(ledger_of_ranks, collectives=collective_waits(stacks, steps))


def _record(stacks: Stacks, steps: RankSteps, window: Window) -> RankRecord:
    """What the stepping thread of a rank did, with its waits for other ranks."""
    host, strip, samples = host_time(stacks, window)
    run = stacks.run  # in a trace, other threads may communicate while this one computes
    on_cpu = device_kind(run) == "cpu" and not run.is_trace
    strip = with_rank_waits(strip, steps, steps.windows.index(window), MAY_BE_WAITS if on_cpu else MAY_WAIT_FOR_DEVICE)
    if strip is not None and on_cpu and (clock := stacks.thread_time(window)) is not None:
        strip = within_blocked(strip, clock)
    return RankRecord(window, host, strip, samples, stage_spans(stacks, window), input_parts(run, window))


def _idle(
    run: Run, window: Window, on_device: Window, host: HostTimeline | None, strip: Strip | None
) -> tuple[tuple[IdleBlame, ...], Notice | None]:
    reason = no_queue_reason(run, window)
    if reason or host is None or strip is None:
        return (), reason or LEVEL_LIGHT
    rows = idle_blame(run, on_device, host, unrecorded_is_python=_is_mostly_python(strip))
    delays, waits, wall = step_delays(run, on_device), waits_without_core(run, on_device), on_device.wall_ns
    stalled, waited = None, 0.0
    if waits is not None:
        delays, stalled = None if delays is None else waits.remaining(delays), int(waits.stalled.sum()) / wall
        waited = stalled + int(strip.ns[:, CODE["sync"]].sum()) / window.wall_ns  # the strip has taken it out of them
    delayed = 0.0 if delays is None else int(delays.sum()) / wall
    return split_off_core(rows, delayed=delayed, stalled=stalled, waited=waited), None


def _is_mostly_python(strip: Strip) -> bool:
    """Whether time of which nothing was recorded was mostly Python, by stack samples."""
    return strip.python_share >= 0.5


def _replay(run: Run, on_device: Window, host: HostTimeline | None, strip: Strip | None) -> Replay | None:
    """The steps of a device with a queue, to be simulated; None where its activities were not recorded."""
    if no_queue_reason(run, on_device) or host is None or strip is None or not len(on_device):
        return None
    return Replay(run, on_device, host, "python" if _is_mostly_python(strip) else UNATTRIBUTED)


def _measured(categories: Mapping[str, float], breakdown: Mapping[str, Measure]) -> Mapping[str, float]:
    """The categories of a line. Where the breakdown has none of operators, since no torch was seen, native code that
    Python calls is Python's there, and so here."""
    without = {name for name, measure in breakdown.items() if measure.reason == NO_OPERATORS}
    if not without.intersection(categories):
        return categories
    python = sum(seconds for name, seconds in categories.items() if name in without or name == "python")
    return {name: seconds for name, seconds in categories.items() if name not in without} | {"python": python}


def _missing_parts(topic: Topic, parts: Mapping[str, Measure]) -> Iterable[Missing]:
    """One for the breakdown where no part was measured, else one for each part that was not."""
    absent = {name: measure.reason for name, measure in parts.items() if measure.reason}
    if len(absent) == len(parts):
        return (Missing(topic, next(iter(absent.values()))),)
    return (Missing(topic, reason, name) for name, reason in absent.items())


def _no_sites(run: Run, window: Window) -> Notice:
    if window.reason:
        return window.reason
    return LEVEL_LIGHT if run.info.level == "light" else Notice("no-call-sites")


def _missing_collectors(run: Run) -> Iterable[Missing]:
    for status in run.info.collectors:
        if status.state in ("unavailable", "failed"):
            reason = Notice("text", {"text": status.reason or status.state})
            yield Missing(Topic.COLLECTOR, reason, status.name)


def _sample_warnings(stacks: Stacks, window: Window) -> Iterable[Notice]:
    share = stacks.recorder_share(window)
    if share >= MANY_IN_RECORDER:
        yield Notice("recorder-samples", {"share": share})


def _strip_warnings(strip: Strip | None) -> Iterable[Notice]:
    if strip is None:
        return
    if strip.warning:
        yield strip.warning
    if strip.crossings:
        yield Notice("overlapping-regions", {"count": strip.crossings})
