"""Puts the answers of this room together: `analyse(run)` is the one way in for a single run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiler.analyse.blame import idle_blame
from profiler.analyse.breakdown import Ledger, breakdown, ledger, with_evidence
from profiler.analyse.counters import counters, gauges
from profiler.analyse.covers import hooked
from profiler.analyse.crosscheck import disagreements
from profiler.analyse.device import device_breakdown, no_queue_reason, uneven
from profiler.analyse.divide import divided
from profiler.analyse.doing import thread_activities
from profiler.analyse.evidence import Evidence, evidence
from profiler.analyse.host import HostTimeline, host_timeline
from profiler.analyse.hot import call_sites
from profiler.analyse.input import input_measures, input_parts
from profiler.analyse.lines import line_costs
from profiler.analyse.model import Analysis, IdleBlame, Measure, Missing, Topic
from profiler.analyse.outside import startup_teardown
from profiler.analyse.phases import phases
from profiler.analyse.quality import doubts
from profiler.analyse.resources import resources
from profiler.analyse.spikes import spikes
from profiler.analyse.stacks import activity, flame
from profiler.analyse.throughput import throughput, unit_of
from profiler.analyse.utilisation import series
from profiler.analyse.window import LEVEL_LIGHT, Window, device_kind, device_window, measured_window
from profiler.core.notice import Notice
from profiler.run.model import Run


def analyse(run: Run) -> Analysis:
    """What `run` says, without a verdict: `profiler.diagnose` adds that. Pure; never fails for lack of data."""
    window = measured_window(run)
    host, book, seen = _host(run, window)
    parts = breakdown(window, book, len(host.calls) if host else 0)
    on_device = device_window(run, window)
    device = device_breakdown(run, on_device)
    idle, no_blame = _blame(run, window, on_device, (host, book))
    tree, no_flame = flame(run, window)
    sites = call_sites(run, window)
    measures = (
        gauges(run, window)
        | counters(run, window)
        | resources(run, window)
        | throughput(window, unit_of(run.info))
        | input_measures(run, window)
    )
    missing = [
        *_missing_parts(Topic.HOST_BREAKDOWN, parts),
        *_missing_parts(Topic.DEVICE_BREAKDOWN, device),
        *([Missing(Topic.IDLE_BLAME, no_blame)] if no_blame else []),
        *([Missing(Topic.FLAME_GRAPH, no_flame)] if no_flame else []),
        *([] if sites else [Missing(Topic.CALL_SITES, _no_sites(run, window))]),
        *(Missing(Topic.MEASURE, measure.reason, name) for name, measure in measures.items() if measure.reason),
        *_missing_collectors(run),
    ]
    return Analysis(
        info=run.info,
        measures=measures,
        breakdown=parts,
        device_breakdown=device,
        idle=idle,
        call_sites=sites,
        series=series(run, window),
        flame=tree,
        missing=tuple(missing),
        threads=thread_activities(run),
        step=run.step,
        lines=line_costs(run, seen),
        input=input_parts(run, window),
        phases=phases(run, window, host, seen) if host and hooked(run) else (),
        startup_teardown=startup_teardown(run, window) if hooked(run) else (),
        spikes=spikes(run, window),
        warnings=(*doubts(run, window), *_ledger_warnings(book), *disagreements(run, window), *uneven(run, on_device)),
    )


def _host(run: Run, window: Window) -> tuple[HostTimeline | None, Ledger | None, Evidence | None]:
    if not len(window) or run.info.level == "light":
        return None, None, None
    host = host_timeline(run, window)
    seen, plain = evidence(run, window, host), ledger(host, window)
    if hooked(run):
        return host, divided(plain, run, window, host, seen), seen
    waits_unseen = device_kind(run) == "cuda" and not len(host.calls)
    return host, with_evidence(plain, window, activity(run, window), waits_unseen=waits_unseen), seen


def _blame(
    run: Run, window: Window, on_device: Window, host_side: tuple[HostTimeline | None, Ledger | None]
) -> tuple[tuple[IdleBlame, ...], Notice | None]:
    host, book = host_side
    reason = no_queue_reason(run, window)
    if reason or host is None or book is None:
        return (), reason or LEVEL_LIGHT
    if on_device is not window:
        host = host_timeline(run, on_device)
    return idle_blame(run, on_device, host, uncovered_is_python=book.python_share >= 0.5), None


def _missing_parts(topic: Topic, parts: Mapping[str, Measure]) -> Iterable[Missing]:
    """One line for the whole where no part was measured, else one for each part that was not."""
    absent = {name: measure.reason for name, measure in parts.items() if measure.reason}
    if len(absent) == len(parts):
        return (Missing(topic, next(iter(absent.values()))),)
    return (Missing(topic, reason, name) for name, reason in absent.items())


def _no_sites(run: Run, window: Window) -> Notice:
    if window.reason:
        return window.reason
    if run.info.level == "light":
        return LEVEL_LIGHT
    return Notice("no-call-sites")


def _missing_collectors(run: Run) -> Iterable[Missing]:
    for status in run.info.collectors:
        if status.state in ("unavailable", "failed"):
            yield Missing(Topic.COLLECTOR, Notice("text", {"text": status.reason or status.state}), status.name)


def _ledger_warnings(book: Ledger | None) -> Iterable[Notice]:
    if book is None:
        return
    if book.warning:
        yield book.warning
    if book.crossings:
        yield Notice("overlapping-regions", {"count": book.crossings})
