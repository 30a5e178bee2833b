"""What each thread of a recorded window was doing, from its stack samples; this is the main result of `attach`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import covered_within, times
from profiler.analyse.model import LineCost, ThreadActivity, ThreadState
from profiler.analyse.sampling.batch_means import MAX_BATCHES, effective_sample_size, sum_in_batches
from profiler.analyse.sampling.code_origin import USER
from profiler.analyse.sampling.frames import CHECKPOINT, DATA, Stack
from profiler.analyse.sampling.gil import WINDOWS, window_intervals
from profiler.analyse.sampling.lines import most_frequent
from profiler.analyse.sampling.stacks import PERIOD, Stacks
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S, named_rows
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
"""Number of a stack, and its CPU state."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """All samples of a thread with one stack and one CPU state."""

    number: int
    active: int
    """1: on a CPU; 0: not; -1: unknown."""
    ns: int
    stack: Stack
    state: ThreadState


def thread_activities(stacks: Stacks) -> tuple[ThreadActivity, ...]:
    """The main thread of every sampled process, and its other threads that were not idle; in order of process."""
    run = stacks.run
    source, holders, samples = dict(_source_lines(run)), rows_by(run.gil_stacks, "pid"), rows_by(run.samples, "pid")
    threads = list[ThreadActivity]()
    for pid, rows in rows_by(run.stacks, "pid").items():
        process = _Process(
            stacks, source, rows, holders.get(pid, run.gil_stacks[:0]), samples.get(pid, run.samples[:0])
        )
        threads += (process.thread(tid, rows) for tid, rows in rows_by(rows, "tid").items())
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


class _Process:
    """The samples of one process."""

    def __init__(
        self, stacks: Stacks, source: Mapping[tuple[str, int], str], rows: Table, holders: Table, samples: Table
    ) -> None:
        run = stacks.run
        self._stacks, self._run, self._source = stacks, run, source
        self._pid = int(rows["pid"][0])
        self._holders, self._no_holders = rows_by(holders, "tid"), holders[:0]
        self._clocks = rows_by(named_rows(run, samples, "thread.cpu_s"), "tid")
        titles = [name for name in run.names if name.startswith(THREAD_NAME)]
        named = named_rows(run, samples, *titles)[::-1]  # the first name of a thread wins
        self._names = {int(row["tid"]): run.names[row["name"]][len(THREAD_NAME) :] for row in named}
        self._windows = window_intervals(named_rows(run, samples, WINDOWS))
        periods = named_rows(run, samples, PERIOD)["value"]
        self._period = float(np.median(periods)) if len(periods) else 0.0
        sites = {site for number in np.unique(rows["stack"]).tolist() for site in run.stack_frames[number]}
        self._has_torch = any(_TORCH in site.file for site in sites)
        self._has_device = bool(run.info.devices) or run.info.facts.get("device", "cpu") != "cpu"
        self._name = "loader worker" if any(map(_in_worker, sites)) else self._role()

    def thread(self, tid: int, rows: Table) -> ThreadActivity:
        """The activity of one of its threads."""
        state_ns = _state_ns(rows)
        total = sum(state_ns.values()) or 1
        count = max(1, round(total / NS_PER_S / self._period)) if self._period else max(1, len(rows))
        holding = self._holders.get(tid, self._no_holders)
        lifetime = np.concatenate([rows["begin"], rows["end"], holding["begin"], holding["end"]])
        watched = int(covered_within(self._windows, lifetime.min(keepdims=True), lifetime.max(keepdims=True))[0])
        gil = self._gil_shares(holding, watched, state_ns, total, count) if watched else {}
        entries = []
        for (number, active), ns in state_ns.items():
            stack = self._stacks[number]
            held = gil.get(self._leaf(number))
            entries.append(_Entry(number, active, ns, stack, self._state(stack, active, held)))
        shares = sorted(((name, ns / total) for name, ns in _sums(entries, "state").items()), key=_largest_first)
        state, share = shares[0]
        main = [entry for entry in entries if entry.state == state]
        site = max(_sums(main, "site").items(), key=lambda item: (item[1], item[0]))[0]
        low, high = share_interval(share, _effective_size(rows, main, count))
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
            calls=most_frequent(_sums([entry for entry in main if entry.stack.site == site], "calls")),
            on_cpu=self._on_cpu(tid),
            gil=min(1.0, float((holding["end"] - holding["begin"]).sum()) / watched) if watched else None,
            states=tuple(shares),
            lines=tuple(_lines(entries, rows, count)),
        )

    def _state(self, stack: Stack, active: int, gil: float | None) -> ThreadState:
        """The state of one stack.

        :param gil: share of this stack's time in which the GIL was held; None: unknown.
        """
        waits = bool(stack.leaf_roles & {"wait", "launcher"}) and active != 1
        state = _library_state(stack, waits=waits) or _waiting_state(stack, waits=waits)
        if state is not None:
            return state
        native = gil is not None and gil < _MOSTLY
        # no library frame: whatever the line called was native
        line = "" if stack.calls else self._source.get((stack.site.file, stack.site.line), "")
        if self._has_device and (active == 0 or native) and _SYNC_CALLS.search(line):
            return ThreadState.PROBABLY_SYNC
        if active == 0 and (gil is None or native):  # a thread that holds the GIL is only waiting for a core
            return ThreadState.TORCH if stack.in_torch else ThreadState.IDLE
        if stack.in_torch or (native and self._has_torch):
            return ThreadState.TORCH
        return ThreadState.NATIVE if native else ThreadState.PYTHON

    def _gil_shares(
        self, holding: Table, watched: int, state_ns: Mapping[_State, int], total: int, count: int
    ) -> dict[Site | None, float]:
        """For each innermost frame, the share of its time in which the thread held the GIL.

        :param watched: ns of windows of the GIL's holder during the thread's lifetime.
        """
        present, held_ns = defaultdict[Site | None, float](float), defaultdict[Site | None, float](float)
        for (number, _), ns in state_ns.items():
            present[self._leaf(number)] += ns / total
        for (number, _), ns in _state_ns(holding).items():
            held_ns[self._leaf(number)] += ns / watched
        return {leaf: held_ns[leaf] / share for leaf, share in present.items() if share * count >= _MIN_SAMPLES}

    def _leaf(self, number: int) -> Site | None:
        return next(reversed(self._run.stack_frames[number]), None)

    def _on_cpu(self, tid: int) -> float | None:
        rows = self._clocks.get(tid)
        passed = float(np.ptp(rows["time"])) / NS_PER_S if rows is not None else 0.0
        return min(1.0, float(np.ptp(rows["value"])) / passed) if rows is not None and passed else None

    def _role(self) -> str:
        entry = next((entry for entry in _listed_processes(self._run) if entry["pid"] == self._pid), {})
        rank = entry.get("rank")
        steps = self._run.steps[self._run.steps["pid"] == self._pid]
        if rank is None and len(steps) and len(np.unique(self._run.steps["rank"])) > 1:
            rank = steps["rank"][0]
        if rank is not None:
            return f"rank {rank}"
        return str(entry.get("name", "")) or ("training process" if len(steps) else "process")


def _library_state(stack: Stack, *, waits: bool) -> ThreadState | None:
    """The state that frames of a library indicate by themselves."""
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


def _lines(entries: list[_Entry], rows: Table, count: int) -> Iterator[LineCost]:
    """The lines with the most of a thread's samples, whatever it did there."""
    weights = _sums(entries, "site")
    total = weights.total() or 1
    for site, ns in [item for item in sorted(weights.items(), key=_largest_first) if item[0].file][:_MAX_LINES]:
        share = ns / total
        if share < _MIN_LINE_SHARE:
            break
        below = [entry for entry in entries if entry.stack.site == site]
        low, high = share_interval(share, _effective_size(rows, below, count))
        mix = {state: state_ns / NS_PER_S for state, state_ns in _sums(below, "state").items()}
        callee, samples = most_frequent(_sums(below, "calls")), round(share * count)
        yield LineCost(site, callee, ns / NS_PER_S, share, low, high, samples, mix)


def _sums(entries: Iterable[_Entry], field: Literal["state", "site", "calls"]) -> Counter[Any]:
    """ns by state of the thread, or by line, or by what the line calls."""
    sums = Counter[Any]()
    for entry in entries:
        sums[entry.state if field == "state" else getattr(entry.stack, field)] += entry.ns
    return sums


def _largest_first(item: tuple[Any, float]) -> tuple[float, Any]:
    return -item[1], item[0]


def _in_worker(site: Site) -> bool:
    """Whether it is a loader's worker at work: any process that imports torch runs that file once."""
    return site.file.endswith(_WORKER) and site.function.rpartition(".")[2] != "<module>"


def _state_keys(rows: Table) -> npt.NDArray[np.int64]:
    keys: npt.NDArray[np.int64] = rows["stack"].astype(np.int64) * 3 + rows["active"] + 1
    return keys


def _state_ns(rows: Table) -> dict[_State, int]:
    keys, group = np.unique(_state_keys(rows), return_inverse=True)
    spans = np.bincount(group, (rows["end"] - rows["begin"]).astype(np.float64), minlength=len(keys))
    return {(key // 3, key % 3 - 1): round(span) for key, span in zip(keys.tolist(), spans.tolist(), strict=True)}


def _effective_size(rows: Table, entries: Iterable[_Entry], count: int) -> float:
    """The number of independent samples behind the share of `entries`, which is lower than `count` if the program has
    long phases."""
    ns = (rows["end"] - rows["begin"]).astype(np.float64)
    chosen = np.isin(_state_keys(rows), [entry.number * 3 + entry.active + 1 for entry in entries])
    first, last = int(rows["begin"].min()), int(rows["end"].max())
    edges = times(np.linspace(first, last, MAX_BATCHES + 1)[1:-1])
    unsampled = max(0.0, 1 - float(ns.sum()) / max(1, last - first))
    part, whole = (sum_in_batches(edges, rows["begin"], each) for each in (ns * chosen, ns))
    return effective_sample_size(part, whole, count, unsampled)
