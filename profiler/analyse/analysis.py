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
from profiler.analyse.doing import doings
from profiler.analyse.evidence import Evidence, evidence
from profiler.analyse.host import HostTimeline, host_timeline
from profiler.analyse.hot import hot_sites
from profiler.analyse.input import input_measures, input_parts
from profiler.analyse.lines import line_costs
from profiler.analyse.model import Analysis, IdleBlame, Measure, Missing
from profiler.analyse.outside import outside
from profiler.analyse.phases import phases
from profiler.analyse.quality import doubts
from profiler.analyse.resources import resources
from profiler.analyse.spikes import spikes
from profiler.analyse.stacks import activity, flame
from profiler.analyse.throughput import throughput, unit_of
from profiler.analyse.utilisation import series
from profiler.analyse.window import LEVEL_LIGHT, Window, device_kind, device_window, measured_window
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
    hot = hot_sites(run, window)
    measures = (
        gauges(run, window)
        | counters(run, window)
        | resources(run, window)
        | throughput(window, unit_of(run.info))
        | input_measures(run, window)
    )
    missing = [
        *_missing_of("breakdown of the host's time", parts),
        *_missing_of("breakdown of the device's time", device),
        *(Missing("blame of the device's idle time", no_blame) for _ in range(bool(no_blame))),
        *(Missing("flame graph", no_flame) for _ in range(bool(no_flame))),
        *([] if hot else [Missing("sites of calls", _no_sites(run, window))]),
        *(Missing(name, measure.reason) for name, measure in measures.items() if measure.value is None),
        *_missing_collectors(run),
    ]
    return Analysis(
        info=run.info,
        measures=measures,
        breakdown=parts,
        device_breakdown=device,
        idle=idle,
        hot=hot,
        series=series(run, window),
        flame=tree,
        missing=tuple(missing),
        doing=doings(run),
        step=run.step,
        lines=line_costs(run, seen),
        input=input_parts(run, window),
        phases=phases(run, window, host, seen) if host and hooked(run) else (),
        outside=outside(run, window) if hooked(run) else (),
        spikes=spikes(run, window),
        notes=(*doubts(run, window), *_ledger_notes(book), *disagreements(run, window), *uneven(run, on_device)),
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
) -> tuple[tuple[IdleBlame, ...], str]:
    host, book = host_side
    reason = no_queue_reason(run, window)
    if reason or host is None or book is None:
        return (), reason or LEVEL_LIGHT
    if on_device is not window:
        host = host_timeline(run, on_device)
    return idle_blame(run, on_device, host, uncovered_is_python=book.python_share >= 0.5), ""


def _missing_of(title: str, parts: Mapping[str, Measure]) -> Iterable[Missing]:
    """One line for the whole where no part was measured, else one for each part that was not."""
    absent = {name: measure.reason for name, measure in parts.items() if measure.value is None}
    if len(absent) == len(parts):
        return (Missing(title, next(iter(absent.values()))),)
    return (Missing(f"{title}: {name}", reason) for name, reason in absent.items())


def _no_sites(run: Run, window: Window) -> str:
    if window.reason:
        return window.reason
    if run.info.level == "light":
        return LEVEL_LIGHT
    return "no call toward a device was recorded with its line"


def _missing_collectors(run: Run) -> Iterable[Missing]:
    for status in run.info.collectors:
        if status.state in ("unavailable", "failed"):
            yield Missing(f"collector {status.name}", status.reason or status.state)


def _ledger_notes(book: Ledger | None) -> Iterable[str]:
    if book is None:
        return
    if book.note:
        yield book.note
    if book.crossings:
        yield f"{book.crossings:,} regions or calls ended after the one that they began in; they were cut at its end"
