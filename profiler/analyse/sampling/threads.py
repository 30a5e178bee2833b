"""What each thread of a recorded window was doing, from its stack samples; this is the main result of `attach`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from profiler.analyse.intervals import covered_within, times, union
from profiler.analyse.model import LineCost, ThreadActivity, ThreadState
from profiler.analyse.sampling.batch_means import MAX_BATCHES, effective_sample_size, sum_in_batches
from profiler.analyse.sampling.code_origin import USER, package_folders
from profiler.analyse.sampling.frames import CHECKPOINT, DATA, Stack, classify_stack
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S, select
from profiler.core.samples import SOURCE_LINE, THREAD_NAME
from profiler.run.filter import rows_by
from profiler.run.model import Run, Site, Table

_WORKER: Final = "/torch/utils/data/_utils/worker.py"
_TORCH: Final = "/torch/"
_SYNC_CALLS: Final = re.compile(
    r"\.(item|tolist|cpu|numpy|nonzero|synchronize|wait_stream)\(|\bsynchronize\(|\b(bool|float|int|print)\("
    r"|\.to\(\s*['\"]cpu|torch\.(unique|nonzero|masked_select)\("
)
"""Source text of a line that makes the host wait for the device: these calls are native, so no Python frame shows
them."""
_MOSTLY: Final = 0.5
"""If a thread held the GIL for more than this share of the time, it ran Python itself and not native code."""
_MIN_SAMPLES: Final = 5
"""With fewer samples of a line, its share of holding the GIL is unknown."""
_MAX_LINES: Final = 4
_MIN_LINE_SHARE: Final = 0.02
"""Share of a thread's time below which a line is not listed."""
_MIN_BUSY: Final = 0.1
"""A thread other than the main one that was busy in less than this share of its samples is left out."""

_State = tuple[int, int]
"""Number of a stack, and its CPU state: 1 on a CPU, 0 not, -1 unknown."""


def thread_activities(run: Run) -> tuple[ThreadActivity, ...]:
    """The main thread of every sampled process, and its other threads that were not idle; in order of process."""
    if not len(run.stacks):
        return ()
    source = dict(_source_lines(run))
    holders, samples = rows_by(run.gil_stacks, "pid"), rows_by(run.samples, "pid")
    threads = list[ThreadActivity]()
    for pid, stacks in rows_by(run.stacks, "pid").items():
        process = _Process(run, source, stacks, holders.get(pid, run.gil_stacks[:0]), samples.get(pid, run.samples[:0]))
        threads += process.threads()
    order = [int(entry["pid"]) for entry in _listed_processes(run)]

    def position(thread: ThreadActivity) -> tuple[int, int, bool]:
        pid = thread.pid
        return order.index(pid) if pid in order else len(order), pid, thread.tid != pid

    return tuple(sorted(filter(_is_busy, threads), key=position))


def _is_busy(thread: ThreadActivity) -> bool:
    return thread.tid == thread.pid or dict(thread.states).get(ThreadState.IDLE, 0.0) < 1 - _MIN_BUSY


def _listed_processes(run: Run) -> list[Mapping[str, Any]]:
    """The processes that the recorder listed."""
    listed = run.info.facts.get("processes", ())
    return [entry for entry in listed if isinstance(entry, dict) and "pid" in entry] if isinstance(listed, list) else []


def _source_lines(run: Run) -> Iterator[tuple[tuple[str, int], str]]:
    """(file, line) -> the text of the line, where the recorder read it."""
    for name in run.names:
        if name.startswith(SOURCE_LINE):
            file, _, remainder = name[len(SOURCE_LINE) :].partition(":")
            line, _, text = remainder.partition(":")
            if line.isdecimal():
                yield (file, int(line)), text


@dataclass(slots=True)
class _Group:
    """Samples of one state at one line."""

    weight: int = 0
    calls: Counter[str] = field(default_factory=Counter)


class _Process:
    """The samples of one process."""

    def __init__(
        self, run: Run, source: Mapping[tuple[str, int], str], stacks: Table, holders: Table, samples: Table
    ) -> None:
        self._run = run
        self._pid = int(stacks["pid"][0])
        self._source = source
        self._threads = rows_by(stacks, "tid")
        self._holders = rows_by(holders, "tid")
        self._no_holders = holders[:0]
        self._samples = samples
        windows, periods = self._samples_named("stacks.gil_window_s"), self._samples_named("stacks.period_s")
        end, length = times(windows["time"]), times(np.rint(windows["value"] * NS_PER_S))
        self._windows = union(end - length, end)
        self._period = float(np.median(periods["value"])) if len(periods) else 0.0
        self._clocks = rows_by(self._samples_named("thread.cpu_s"), "tid")
        self._names = dict(self._thread_names())
        folders = package_folders(run)
        self._frames = {number: run.stack_frames[number] for number in np.unique(stacks["stack"]).tolist()}
        self._stacks = {number: classify_stack(frames, folders) for number, frames in self._frames.items()}
        sites = [site for frames in self._frames.values() for site in frames]
        self._has_torch = any(_TORCH in site.file for site in sites)
        self._has_device = bool(run.info.devices) or run.info.facts.get("device", "cpu") != "cpu"
        self._is_worker = any(map(_in_worker, sites))

    def threads(self) -> Iterator[ThreadActivity]:
        """What each thread was doing."""
        return (self._thread(tid, rows) for tid, rows in self._threads.items())

    def _thread(self, tid: int, rows: Table) -> ThreadActivity:
        weights = _state_ns(rows)
        total = sum(weights.values()) or 1
        holding, watched = self._gil_holding(tid, rows)
        gil = self._gil_shares(holding, watched, weights, rows) if watched else {}
        state_ns: dict[ThreadState, int] = defaultdict(int)
        states: dict[_State, ThreadState] = {}
        sites: dict[_State, Site] = {}
        groups: dict[tuple[ThreadState, Site], _Group] = defaultdict(_Group)
        for key, ns in weights.items():
            number, active = key
            stack = self._stacks[number]
            text = self._source.get((stack.site.file, stack.site.line), "")
            state = self._state(stack, active, gil.get(_leaf(self._frames[number])), text)
            states[key], sites[key] = state, stack.site
            state_ns[state] += ns
            group = groups[state, stack.site]
            group.weight += ns
            group.calls[stack.calls] += ns
        shares = sorted(((name, ns / total) for name, ns in state_ns.items()), key=lambda pair: (-pair[1], pair[0]))
        state, share = shares[0]
        at_site = {site: group for (name, site), group in groups.items() if name == state}
        site = max(at_site, key=lambda site: (at_site[site].weight, site))
        calls = at_site[site].calls
        count = self._sample_count(rows, total)
        size = _effective_size(rows, {key for key, name in states.items() if name == state}, count)
        low, high = share_interval(share, size)
        return ThreadActivity(
            pid=self._pid,
            tid=tid,
            process=self._name,
            thread="" if tid == self._pid else self._names.get(tid, f"thread {tid}"),
            state=state,
            share=share,
            low=low,
            high=high,
            samples=count,
            site=site if site.file else None,
            source_line=self._source.get((site.file, site.line), ""),
            calls=max(calls, key=lambda name: (calls[name], name)),
            on_cpu=self._on_cpu(tid),
            gil=min(1.0, float((holding["end"] - holding["begin"]).sum()) / watched) if watched else None,
            states=tuple(shares),
            lines=tuple(_lines(groups, sites, rows, count)),
        )

    def _state(self, stack: Stack, active: int, gil: float | None, source_line: str) -> ThreadState:
        """The state of one stack.

        :param active: 1: on a CPU; 0: not; -1: unknown.
        :param gil: share of this stack's time in which the GIL was held; None: unknown.
        """
        waits = bool(stack.leaf_roles & {"wait", "launcher"}) and active != 1
        state = _library_state(stack, waits=waits) or _waiting_state(stack, waits=waits)
        if state is not None:
            return state
        native = gil is not None and gil < _MOSTLY
        # no library frame: whatever the line called was native
        if not stack.calls and self._has_device and (active == 0 or native) and _SYNC_CALLS.search(source_line):
            return ThreadState.PROBABLY_SYNC
        if active == 0 and (gil is None or native):  # a thread that holds the GIL is only waiting for a core
            return ThreadState.TORCH if stack.in_torch else ThreadState.IDLE
        if stack.in_torch or (native and self._has_torch):
            return ThreadState.TORCH
        return ThreadState.NATIVE if native else ThreadState.PYTHON

    def _gil_holding(self, tid: int, rows: Table) -> tuple[Table, int]:
        """The thread's samples as the GIL's holder, and the ns of GIL windows during its lifetime."""
        holding = self._holders.get(tid, self._no_holders)
        tables = (rows, holding) if len(holding) else (rows,)
        begin, end = (
            min(int(table["begin"].min()) for table in tables),
            max(int(table["end"].max()) for table in tables),
        )
        return holding, int(covered_within(self._windows, [begin], [end])[0])

    def _gil_shares(
        self, holding: Table, watched: int, weights: Mapping[_State, int], rows: Table
    ) -> dict[Site | None, float]:
        """For each innermost frame, the share of its time in which the thread held the GIL."""
        present, held_ns = defaultdict[Site | None, float](float), defaultdict[Site | None, float](float)
        total = sum(weights.values()) or 1
        for (number, _), ns in weights.items():
            present[_leaf(self._frames[number])] += ns / total
        for (number, _), ns in _state_ns(holding).items():
            held_ns[_leaf(self._run.stack_frames[number])] += ns / watched
        count = self._sample_count(rows, total)
        return {leaf: held_ns[leaf] / share for leaf, share in present.items() if share * count >= _MIN_SAMPLES}

    def _samples_named(self, name: str) -> Table:
        if name not in self._run.names:
            return self._samples[:0]
        rows: Table = self._samples[self._samples["name"] == self._run.names.index(name)]
        return rows

    def _on_cpu(self, tid: int) -> float | None:
        rows = self._clocks.get(tid, self._samples[:0])
        passed = float(rows["time"].max() - rows["time"].min()) / 1e9 if len(rows) > 1 else 0.0
        return min(1.0, float(rows["value"].max() - rows["value"].min()) / passed) if passed else None

    def _sample_count(self, rows: Table, total: int) -> int:
        """About how many samples make up `total` ns of one thread: a row may stand for several."""
        return max(1, round(total / NS_PER_S / self._period)) if self._period else max(1, len(rows))

    def _thread_names(self) -> Iterator[tuple[int, str]]:
        titles = {number: name for number, name in enumerate(self._run.names) if name.startswith(THREAD_NAME)}
        rows = select(self._samples, np.isin(self._samples["name"], list(titles)))[::-1]  # the first name wins
        for tid, number in zip(rows["tid"].tolist(), rows["name"].tolist(), strict=True):
            yield tid, titles[number][len(THREAD_NAME) :]

    @property
    def _name(self) -> str:
        if self._is_worker:
            return "loader worker"
        entry = next((entry for entry in _listed_processes(self._run) if entry["pid"] == self._pid), {})
        rank = entry.get("rank")
        if rank is not None:
            return f"rank {rank}"
        steps = self._run.steps[self._run.steps["pid"] == self._pid]
        if len(steps) and len(np.unique(self._run.steps["rank"])) > 1:
            return f"rank {steps['rank'][0]}"
        return str(entry.get("name", "")) or ("training process" if len(steps) else "process")


def _library_state(stack: Stack, *, waits: bool) -> ThreadState | None:
    """What the frames of a library tell by themselves."""
    if "loader" in stack.roles and waits:
        return ThreadState.IDLE  # a worker or the thread that pins memory has nothing to do
    if stack.calls.startswith("import "):
        return ThreadState.IMPORTING
    if stack.stratum == DATA:
        if waits:
            return ThreadState.WAITING_FOR_DATA
        return ThreadState.RECEIVING_DATA if "receive" in stack.roles else ThreadState.MAKING_DATA
    if stack.stratum == CHECKPOINT or stack.category == "checkpoint":
        return ThreadState.CHECKPOINTING
    if stack.category == "log":
        return ThreadState.LOGGING
    if "compiler" in stack.roles:
        return ThreadState.COMPILING
    if "ranks" in stack.roles:
        return ThreadState.WAITING_FOR_RANKS
    return ThreadState.SYNC if "sync" in stack.roles else None


def _waiting_state(stack: Stack, *, waits: bool) -> ThreadState | None:
    """The state of a waiting thread. A waiting thread of a library is idle."""
    if waits and ("launcher" in stack.leaf_roles or "child" in stack.roles):
        return ThreadState.CHILD
    network = "network" in stack.roles
    if "pool" in stack.leaf_roles or ((waits or network) and stack.owner != USER):
        return ThreadState.IDLE
    if network:
        return ThreadState.NETWORK
    return ThreadState.LOCK if waits else None


def _lines(
    groups: Mapping[tuple[ThreadState, Site], _Group], sites: Mapping[_State, Site], rows: Table, count: int
) -> Iterator[LineCost]:
    """The lines with the most of a thread's samples, whatever it did there."""
    weights, mixes = Counter[Site](), defaultdict[Site, dict[str, float]](dict)
    calls = defaultdict[Site, Counter[str]](Counter)
    for (state, site), group in groups.items():
        weights[site] += group.weight
        mixes[site][state] = group.weight / NS_PER_S
        calls[site] += group.calls
    total = weights.total() or 1
    for site in sorted(filter(lambda site: site.file, weights), key=lambda site: (-weights[site], site))[:_MAX_LINES]:
        share = weights[site] / total
        if share < _MIN_LINE_SHARE:
            break
        size = _effective_size(rows, {key for key, line in sites.items() if line == site}, count)
        low, high = share_interval(share, size)
        callee = max(calls[site], key=lambda name: (calls[site][name], name))
        samples = round(share * count)
        yield LineCost(site, callee, weights[site] / NS_PER_S, share, low, high, samples, mixes[site])


def _in_worker(site: Site) -> bool:
    """Whether it is a loader's worker at work: any process that imports torch runs that file once."""
    return site.file.endswith(_WORKER) and site.function.rpartition(".")[2] != "<module>"


def _leaf(frames: tuple[Site, ...]) -> Site | None:
    return frames[-1] if frames else None


def _state_ns(rows: Table) -> dict[_State, int]:
    """(stack, active) -> ns."""
    keys, group = np.unique(rows["stack"].astype(np.int64) * 3 + rows["active"] + 1, return_inverse=True)
    spans = np.bincount(group, (rows["end"] - rows["begin"]).astype(np.float64), minlength=len(keys))
    return {(key // 3, key % 3 - 1): round(span) for key, span in zip(keys.tolist(), spans.tolist(), strict=True)}


def _effective_size(rows: Table, states: set[_State], count: int) -> float:
    """The number of independent samples behind the share of `states`, which is lower than `count` if the program has
    long phases."""
    key = rows["stack"].astype(np.int64) * 3 + rows["active"] + 1
    ns = (rows["end"] - rows["begin"]).astype(np.float64)
    chosen = np.isin(key, [number * 3 + active + 1 for number, active in states])
    first, last = int(rows["begin"].min()), int(rows["end"].max())
    edges = times(np.linspace(first, last, MAX_BATCHES + 1)[1:-1])
    unsampled = max(0.0, 1 - float(ns.sum()) / max(1, last - first))
    return effective_sample_size(
        sum_in_batches(edges, rows["begin"], ns * chosen), sum_in_batches(edges, rows["begin"], ns), count, unsampled
    )
