"""Analyses a run: `analyse(run)` calls every other module of this package once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from profiler.analyse.figures import flame_graph
from profiler.analyse.ledger import make_ledger
from profiler.analyse.ledger_steps import RankRecord
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import IdleBlame
from profiler.analyse.model.host import LineCost
from profiler.analyse.model.measures import CORELESS_CATEGORIES, UNATTRIBUTED, Measure, Missing, Topic
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
from profiler.analyse.timing.host_timeline import CODE, full_timeline, memory_fills
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
    """Return the results of `run`, without a verdict: `profiler.diagnose` adds that. Never fails for lack of data.

    :raises ProfilerError: the program was counted, so that the run has counts and no times.
    """
    if run.info.is_counted:
        raise ProfilerError(f"{run.path}: a run that counts has no times; `diagnose {run.path}` prints them")
    run = set_apart(run)
    stacks, steps = Stacks(run), rank_steps(run, rank_windows(run))
    window, hooked = steps.analysed, has_hooked_steps(run)
    on_device = device_window(run, window)
    records = [_record(stacks, steps, each) for each in steps.windows]
    record = records[steps.windows.index(window)]
    host, strip, samples, stages = record.host, record.strip, record.samples, record.stages
    operators, clock = operator_lines(stacks), stacks.thread_time(window) if len(window) else None
    host_breakdown = breakdown(window, strip, len(host.calls) if host else 0)
    lines = line_costs(stacks, samples, operators)
    flame, no_flame = flame_graph(stacks, window)
    analysis = Analysis(
        info=run.info,
        measures=_measures(run, window),
        breakdown=host_breakdown,
        device_breakdown=device_breakdown(run, on_device),
        call_sites=call_sites(run, window, with_operations=hooked),
        series=series(run, window),
        flame=flame,
        threads=thread_activities(stacks),
        step=run.step,
        lines=tuple(replace(line, categories=_measured(line.categories, host_breakdown)) for line in lines),
        library=library_functions(stacks, samples),
        blocked=window.per_step(clock.blocked) if clock else None,
        operators=operators,
        tables=table_gradients(stacks),
        made=made_objects(stacks),
        preparation=preparation(stacks, samples, stages, operators),
        driver=find_driver(stacks, samples),
        input=tuple(record.inputs),
        loader=loader_use(run, window),
        batches=batch_curve(run, window),
        spikes=spikes(stacks, window, stages, samples),
        one_offs=one_offs(stacks, window, samples),
        results=run.results,
        path=run.path,
    )
    analysis = _with_device(_with_stages(analysis, stacks, record) if hooked else analysis, run, on_device, record)
    return replace(
        analysis,
        ranks=_rank_ledger(stacks, steps, records, lines),
        ledger=make_ledger(stacks, records, window, on_device, analysis),
        missing=tuple(_missing(analysis, run, record, no_flame)),
        warnings=tuple(_warnings(stacks, on_device, record)),
    )


def _with_stages(analysis: Analysis, stacks: Stacks, record: RankRecord) -> Analysis:
    """Add what only hooks record: the stages of the program, the phases of its steps, and what the hooks cost."""
    window, host, strip, stages = record.window, record.host, record.strip, record.stages
    costs = {}
    if strip is not None:
        waits = strip.ns[:, [CODE[name] for name in CORELESS_CATEGORIES]].sum(axis=1)
        costs = stage_costs(window, stages, np.asarray(waits, np.float64))
    return replace(
        analysis,
        recording=recording_seconds(stacks.run, window),
        phases=phases(stacks, window, host, record.samples, stages) if host else (),
        stages=stage_times(stacks, window, stages),
        startup_teardown=startup_teardown(stacks, window),
        stage_costs=costs,
    )


def _with_device(analysis: Analysis, run: Run, on_device: Window, record: RankRecord) -> Analysis:
    """Add what a device did, why it was idle, and its steps to be simulated where it has a queue.

    :param on_device: the steps whose device activities were recorded.
    """
    window, host, strip = record.window, record.host, record.strip
    idle, replay = tuple[IdleBlame, ...](), None
    if not no_queue_reason(run, window) and host is not None and strip is not None:
        on_host = host if on_device is window else full_timeline(run, on_device)
        is_python = strip.python_share >= 0.5  # most time of which nothing was recorded, by stack samples
        idle = _idle(run, window, on_device, strip, idle_blame(run, on_device, on_host, unrecorded_is_python=is_python))
        if not no_queue_reason(run, on_device) and len(on_device):
            replay = Replay(run, on_device, on_host, "python" if is_python else UNATTRIBUTED)
    return replace(
        analysis,
        device_parts=device_parts(run, on_device),
        kernels=kernel_times(run, on_device),
        float32_products=float32_product_share(run, on_device),
        memory_fills=memory_fills(run, on_device) if run.is_trace else (0.0, 0.0),
        steady_launches=steady_launches(run, window),
        idle=idle,
        replay=replay,
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


def _rank_ledger(
    stacks: Stacks, steps: RankSteps, records: Sequence[RankRecord], lines: tuple[LineCost, ...]
) -> RankLedger | None:
    """Put the ranks side by side; None of a program with one rank.

    :param lines: of the rank that stands for the run.
    """
    times, run, few_steps = [], stacks.run, ranks_of_few_steps(stacks.run, steps.windows)
    if not len(steps.analysed) or (len(steps.windows) == 1 and not few_steps):
        return None
    for record in records:
        window = record.window
        of_lines = lines if window is steps.analysed else line_costs(stacks, record.samples)
        device = device_breakdown(run, device_window(run, window)) if len(run.activities) else {}
        seconds = {name: measure.value for name, measure in device.items() if measure.value is not None}
        times.append(RankTime(record.strip, of_lines, seconds))
    ledger_of_ranks = rank_ledger(steps, times, job_size(run, steps.windows))
    return replace(ledger_of_ranks, collectives=collective_waits(stacks, steps), few_steps=few_steps)


def _record(stacks: Stacks, steps: RankSteps, window: Window) -> RankRecord:
    """Return what the stepping thread of a rank did, with its waits for other ranks."""
    host, strip, samples = host_time(stacks, window)
    run = stacks.run  # in a trace, other threads may communicate while this one computes
    on_cpu = device_kind(run) == "cpu" and not run.is_trace
    strip = with_rank_waits(strip, steps, steps.windows.index(window), MAY_BE_WAITS if on_cpu else MAY_WAIT_FOR_DEVICE)
    if strip is not None and on_cpu and (clock := stacks.thread_time(window)) is not None:
        strip = within_blocked(strip, clock)
    return RankRecord(window, host, strip, samples, stage_spans(stacks, window), input_parts(run, window))


def _idle(
    run: Run, window: Window, on_device: Window, strip: Strip, rows: Sequence[IdleBlame]
) -> tuple[IdleBlame, ...]:
    """Take the time in which the host or the device had no core out of idle time."""
    delays, waits, wall = step_delays(run, on_device), waits_without_core(run, on_device), on_device.wall_ns
    stalled, waited = None, 0.0
    if waits is not None:
        delays, stalled = None if delays is None else waits.remaining(delays), int(waits.stalled.sum()) / wall
        waited = stalled + int(strip.ns[:, CODE["sync"]].sum()) / window.wall_ns  # the strip has taken it out of them
    delayed = 0.0 if delays is None else int(delays.sum()) / wall
    return split_off_core(rows, delayed=delayed, stalled=stalled, waited=waited)


def _measured(categories: Mapping[str, float], breakdown: Mapping[str, Measure]) -> Mapping[str, float]:
    """Return the categories of a line. Where the breakdown has none of operators, since no torch was seen, native code
    that Python calls is Python's there, and so here."""
    without = {name for name, measure in breakdown.items() if measure.reason == NO_OPERATORS}
    if not without.intersection(categories):
        return categories
    python = sum(seconds for name, seconds in categories.items() if name in without or name == "python")
    return {name: seconds for name, seconds in categories.items() if name not in without} | {"python": python}


def _missing(analysis: Analysis, run: Run, record: RankRecord, no_flame: Notice | None) -> Iterator[Missing]:
    """Tell what was not measured: of a breakdown one for all where no part was, else one for each part that was not."""
    window, is_light = record.window, LEVEL_LIGHT if run.info.level == "light" else None
    for topic, parts in (
        (Topic.HOST_BREAKDOWN, analysis.breakdown),
        (Topic.DEVICE_BREAKDOWN, analysis.device_breakdown),
    ):
        absent = {name: measure.reason for name, measure in parts.items() if measure.reason}
        if len(absent) == len(parts):
            absent = {"": next(iter(absent.values()))}
        yield from (Missing(topic, reason, name) for name, reason in absent.items())
    no_blame = no_queue_reason(run, window) or (None if record.host and record.strip else LEVEL_LIGHT)
    no_sites = None if analysis.call_sites else window.reason or is_light or Notice("no-call-sites")
    lacking = ((Topic.IDLE_BLAME, no_blame), (Topic.FLAME_GRAPH, no_flame), (Topic.CALL_SITES, no_sites))
    yield from (Missing(topic, reason) for topic, reason in lacking if reason)
    for name, measure in analysis.measures.items():
        if measure.reason:
            yield Missing(Topic.MEASURE, measure.reason, name)
    for status in run.info.collectors:
        if status.state in ("unavailable", "failed"):
            yield Missing(Topic.COLLECTOR, Notice("text", {"text": status.reason or status.state}), status.name)


def _warnings(stacks: Stacks, on_device: Window, record: RankRecord) -> Iterator[Notice]:
    run, window, strip = stacks.run, record.window, record.strip
    yield from run_warnings(run, window)
    if strip is not None and strip.warning:
        yield strip.warning
    if strip is not None and strip.crossings:
        yield Notice("overlapping-regions", {"count": strip.crossings})
    share = stacks.recorder_share(window)
    if share >= MANY_IN_RECORDER:
        yield Notice("recorder-samples", {"share": share})
    yield from contradictions(run, window)
    yield from device_warnings(run, on_device)
