"""Tells what each thread was doing, from its stack samples; this is the main result of `attach`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from profiler.analyse.intervals import Intervals, covered_within, subtract, times, union
from profiler.analyse.model.host import LOADER_WORKER, LineCost, ThreadActivity, ThreadState
from profiler.analyse.sampling.frames import BACKWARD, CHECKPOINT, DATA, Stack, callee_name
from profiler.analyse.sampling.lines import most_frequent
from profiler.analyse.sampling.stacks import WINDOWS, Stacks, window_intervals
from profiler.analyse.statistics import MAX_BATCHES, effective_sample_size, share_interval, sum_in_batches
from profiler.analyse.timing.scheduler import ThreadTime, thread_time
from profiler.analyse.window import NS_PER_S, has_ranks, named_rows
from profiler.core.metrics import THREAD_NAME
from profiler.run.code_origin import USER
from profiler.run.filter import rows_by
from profiler.run.model import Run, Site, Table

_TORCH: Final = "/torch/"
_SYNC_CALLS: Final = re.compile(
    r"\.(item|tolist|cpu|numpy|nonzero|synchronize|wait_stream)\(|\bsynchronize\(|\b(bool|float|int|print)\("
    r"|\.to\(\s*['\"]cpu|torch\.(unique|nonzero|masked_select)\("
)
"""Source text of a line that makes the host wait for the device: these calls are native, so no Python frame shows
them."""
_OTHER_CALLS: Final = re.compile(
    r"\.(write|writelines|flush|read|readline|readlines|recv|send|sendall)\(|\bopen\(|\b(os|np|numpy|cv2|zlib)\.\w"
)
"""Source text of a line whose native code may belong to Python or another library than torch."""
_MOSTLY: Final = 0.5
"""If a thread held the GIL for more than this share of the time, it ran Python itself and not native code."""
_MIN_SAMPLES: Final = 5
"""With fewer samples of a line, its share of holding the GIL is unknown."""
_MAX_LINES: Final = 4
_MIN_LINE_SHARE: Final = 0.02
"""Share of a thread's time below which a line is not listed."""
_MIN_BUSY: Final = 0.1
"""A thread other than the main one that was busy in less than this share of its samples is left out."""
_ALWAYS_BLOCKED: Final = 0.02
"""A thread that used less CPU than this share of its time was blocked in every sample whose state is not known."""
_ALSO_ACTIVE: Final = 0.05
"""Share of the time at a line in which a thread was active from which it may wait there for the GIL to go on."""
_BY_OTHERS: Final = 0.05
"""Share of the time in which other threads held the GIL, from which a thread may have waited for it."""

_Key = tuple[int, int]
"""Number of a stack, and its CPU state: 1 active (on a core, or without one though it could have run), 0 blocked, -1
unknown."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """The time of a thread with one stack and in one state."""

    number: int
    ns: float
    stack: Stack
    state: ThreadState


@dataclass(frozen=True, slots=True)
class _Clock:
    """What clocks tell of a thread: the shares of its time in which it was active and had no core; None: unknown."""

    active: float | None = None
    without_core: float = 0.0
    """Share of the active time."""


def thread_activities(stacks: Stacks) -> tuple[ThreadActivity, ...]:
    """Return the main thread of every sampled process, and its other threads that were not idle; in order of
    process."""
    run = stacks.run
    holders, samples = rows_by(run.gil_stacks, "pid"), rows_by(run.samples, "pid")
    threads = list[ThreadActivity]()
    lasting = run.stacks[run.stacks["end"] > run.stacks["begin"]]
    for pid, rows in rows_by(lasting, "pid").items():
        process = _Process(stacks, rows, holders.get(pid, run.gil_stacks[:0]), samples.get(pid, run.samples[:0]))
        threads += (process.thread(tid, rows) for tid, rows in rows_by(rows, "tid").items())
    order = [int(entry["pid"]) for entry in _listed_processes(run)]

    def position(thread: ThreadActivity) -> tuple[int, int, bool]:
        pid = thread.pid
        return order.index(pid) if pid in order else len(order), pid, thread.tid != pid

    return tuple(sorted(filter(_is_busy, threads), key=position))


def _is_busy(thread: ThreadActivity) -> bool:
    return thread.tid == thread.pid or dict(thread.states).get(ThreadState.IDLE, 0.0) < 1 - _MIN_BUSY


def _listed_processes(run: Run) -> list[Mapping[str, Any]]:
    """Return the processes that the recorder listed."""
    listed = run.info.facts.get("processes", ())
    return [entry for entry in listed if isinstance(entry, dict) and "pid" in entry] if isinstance(listed, list) else []


class _Process:
    """The samples of one process."""

    def __init__(self, stacks: Stacks, rows: Table, holders: Table, samples: Table) -> None:
        run = stacks.run
        self._stacks, self._run = stacks, run
        self._pid = int(rows["pid"][0])
        self._holders, self._no_holders = rows_by(holders, "tid"), holders[:0]
        self._clocks = rows_by(named_rows(run, samples, "thread.cpu_s"), "tid")
        titles = [name for name in run.names if name.startswith(THREAD_NAME)]
        named = named_rows(run, samples, *titles)[::-1]  # the first name of a thread wins
        self._names = {int(row["tid"]): run.names[row["name"]][len(THREAD_NAME) :] for row in named}
        self._windows = window_intervals(named_rows(run, samples, WINDOWS))
        numbers = np.unique(rows["stack"]).tolist()
        self._has_torch = any(_TORCH in site.file for number in numbers for site in run.stack_frames[number])
        self._has_device = bool(run.info.devices) or run.info.facts.get("device", "cpu") != "cpu"
        self._has_ranks = has_ranks(run)
        self._name = LOADER_WORKER if self._is_worker(rows) else self._role()

    def thread(self, tid: int, rows: Table) -> ThreadActivity:
        """Return the activity of one of its threads."""
        key_ns = _key_ns(rows)
        total = sum(key_ns.values()) or 1
        count = max(1, round(self._stacks.sample_count(rows, times(rows["end"]) - times(rows["begin"]))))
        holding = self._holders.get(tid, self._no_holders)
        lifetime = np.concatenate([rows["begin"], rows["end"], holding["begin"], holding["end"]])
        lived = union(lifetime.min(keepdims=True), lifetime.max(keepdims=True))
        watched = int(covered_within(self._windows, lived.begin, lived.end)[0])
        gil = self._gil_shares(holding, watched, key_ns, total, count) if watched else {}
        held = sum(int((rows["end"] - rows["begin"]).sum()) for other, rows in self._holders.items() if other != tid)
        others = held / watched if watched else 0.0
        entries = [
            entry
            for part, spans in self._periods(tid, rows, lived)
            for entry in self._entries(_key_ns(part), gil, self._clock(tid, spans), others)
        ]
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
            calls=most_frequent(_sums([entry for entry in main if entry.stack.site == site], "calls")),
            on_cpu=self._on_cpu(tid),
            gil=min(1.0, float((holding["end"] - holding["begin"]).sum()) / watched) if watched else None,
            states=tuple(shares),
            lines=tuple(_lines(entries, rows, count)),
            runs=self._runs(main),
        )

    def _runs(self, entries: Iterable[_Entry]) -> str:
        """Return the outermost function of a library in these stacks, of which none has code of the user's; else
        empty."""
        functions = defaultdict[str, float](float)
        for entry in entries:
            frames = () if entry.stack.owner == USER else self._stacks.library_frames(entry.number)
            functions[callee_name(frames[0], self._stacks.folders) if frames else ""] += entry.ns
        return most_frequent(functions)

    def _entries(
        self, key_ns: Mapping[_Key, int], gil: Mapping[Site | None, float], clock: _Clock, by_others: float
    ) -> Iterator[_Entry]:
        """Yield the time at each stack, divided into active and blocked time, and each part with its state.

        :param gil: see `_gil_shares`.
        :param by_others: share of the time in which other threads held the GIL.
        """
        active_time = self._active_time(key_ns, gil, clock)
        active_share = self._active_shares(key_ns, active_time)
        for key, ns in key_ns.items():
            number, active = key[0], active_time[key]
            stack, leaf = self._stacks[number], self._leaf(number)
            share, held = active_share[leaf], gil.get(leaf)
            if active:
                while_active = None if held is None else held / share
                state = self._active_state(stack, while_active)
                yield _Entry(number, active * (1 - clock.without_core), stack, state)
            if active and clock.without_core:
                yield _Entry(number, active * clock.without_core, stack, ThreadState.CORE)
            if ns > active:
                resumes = by_others > _BY_OTHERS and bool(held) and share > _ALSO_ACTIVE
                yield _Entry(number, ns - active, stack, self._blocked_state(stack, resumes=resumes))

    def _periods(self, tid: int, rows: Table, lived: Intervals) -> Iterator[tuple[Table, Intervals]]:
        """Yield the samples of a thread within its steps and outside of them, with the time of each: clocks tell how
        active it was in each, and a program that starts is more active than one that waits for other ranks."""
        steps = self._run.steps[(self._run.steps["pid"] == self._pid) & (self._run.steps["tid"] == tid)]
        spans = union(steps["begin"], steps["end"])
        inside = 2 * covered_within(spans, rows["begin"], rows["end"]) >= times(rows["end"]) - times(rows["begin"])
        for part, time in ((rows[inside], spans), (rows[~inside], subtract(lived, spans))):
            if len(part):
                yield part, time

    def _active_shares(self, key_ns: Mapping[_Key, int], active: Mapping[_Key, float]) -> dict[Site | None, float]:
        """For each innermost frame, the share of its time in which the thread was active."""
        sums = defaultdict[Site | None, list[float]](lambda: [0.0, 0.0])
        for key, ns in key_ns.items():
            sum_of_leaf = sums[self._leaf(key[0])]
            sum_of_leaf[0] += active[key]
            sum_of_leaf[1] += ns
        return {leaf: part / max(1.0, whole) for leaf, (part, whole) in sums.items()}

    def _active_time(
        self, key_ns: Mapping[_Key, int], gil: Mapping[Site | None, float], clock: _Clock
    ) -> dict[_Key, float]:
        """Return the ns of each key in which the thread was active.

        Where samples do not tell, it was active while it held the GIL, and so much of the remaining time that the total
        is that of its clocks; without clocks, all of it but the library's waits.
        """
        sure, open_ns = dict[_Key, float](), dict[_Key, float]()
        for key, ns in key_ns.items():
            number, state = key
            held = min(1.0, gil.get(self._leaf(number), 0.0))
            if state >= 0:  # one that holds the GIL is only waiting for a core
                sure[key] = float(ns) if state == 1 or held >= _MOSTLY else 0.0
            elif self._stacks[number].leaf_roles & _WAITS:
                sure[key] = 0.0
            else:
                sure[key] = held * ns
                open_ns[key] = ns - held * ns
        remaining = sum(open_ns.values())
        share = 1.0
        if clock.active is not None and remaining:
            share = min(1.0, max(0.0, clock.active * sum(key_ns.values()) - sum(sure.values())) / remaining)
        return {key: known + share * open_ns.get(key, 0.0) for key, known in sure.items()}

    def _active_state(self, stack: Stack, held: float | None) -> ThreadState:
        """Return the state of a thread that is active.

        :param held: share of its active time at this line in which it held the GIL; None: unknown.
        """
        state = _library_state(stack, waits=False) or _waiting_state(stack, waits=False)
        if state is not None:
            return state
        native = held is not None and held < _MOSTLY
        if self._syncs(stack) and native:
            return ThreadState.PROBABLY_SYNC
        if stack.in_torch or (native and self._has_torch and not _OTHER_CALLS.search(self._native_line(stack))):
            return ThreadState.TORCH
        return ThreadState.NATIVE if native else ThreadState.PYTHON

    def _blocked_state(self, stack: Stack, *, resumes: bool) -> ThreadState:
        """Return the state of a thread that is blocked.

        :param resumes: whether it runs Python at this line too, and other threads hold the GIL.
        """
        waits = bool(stack.leaf_roles & _WAITS)
        state = _library_state(stack, waits=waits) or _waiting_state(stack, waits=waits)
        if state is not None:
            return state
        if self._syncs(stack):
            return ThreadState.PROBABLY_SYNC
        if self._has_ranks and stack.stratum == BACKWARD:
            return ThreadState.WAITING_FOR_RANKS
        if stack.in_torch:
            return ThreadState.TORCH  # it waits for torch's own threads
        return ThreadState.GIL if resumes else ThreadState.IDLE

    def _syncs(self, stack: Stack) -> bool:
        """Return whether the line may wait for a device: what it calls is native, as no frame of a library shows it."""
        return self._has_device and bool(_SYNC_CALLS.search(self._native_line(stack)))

    def _native_line(self, stack: Stack) -> str:
        """Return the text of a line without Python frames below it: what it calls is native."""
        return "" if stack.calls else stack.site.source

    def _clock(self, tid: int, lived: Intervals) -> _Clock:
        time: ThreadTime | None = thread_time(self._run, self._pid, tid, lived)
        if time is not None:
            active = time.on_core + time.runnable
            return _Clock(active / time.wall, time.runnable / active if active else 0.0)
        on_cpu = self._on_cpu(tid)
        return _Clock(on_cpu if on_cpu is not None and on_cpu < _ALWAYS_BLOCKED else None)

    def _is_worker(self, rows: Table) -> bool:
        """Return whether most samples of its main thread are in the loop of a loader's worker."""
        own = rows[rows["tid"] == self._pid]
        own = own if len(own) else rows
        ns = Counter[bool]()
        for (number, _), length in _key_ns(own).items():
            ns["worker" in self._stacks[number].roles] += length
        return ns[True] > ns[False]

    def _gil_shares(
        self, holding: Table, watched: int, key_ns: Mapping[_Key, int], total: int, count: int
    ) -> dict[Site | None, float]:
        """For each innermost frame, the share of its time in which the thread held the GIL.

        :param watched: ns of windows of the GIL's holder during the thread's lifetime.
        """
        present, held_ns = defaultdict[Site | None, float](float), defaultdict[Site | None, float](float)
        for (number, _), ns in key_ns.items():
            present[self._leaf(number)] += ns / total
        for (number, _), ns in _key_ns(holding).items():
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


_WAITS: Final = frozenset(("wait", "launcher"))
"""Roles of an innermost frame that only waits."""


def _library_state(stack: Stack, *, waits: bool) -> ThreadState | None:
    """Return the state that frames of a library indicate by themselves. A library's own thread that only waits is idle:
    loggers, progress bars, notebooks and compilers have such threads."""
    if "loader" in stack.roles and waits:
        return ThreadState.IDLE  # a worker or the thread that pins memory has nothing to do
    if stack.calls.startswith("import "):
        return ThreadState.IMPORTING
    if stack.stratum == DATA:
        if waits:
            return ThreadState.WAITING_FOR_DATA
        return ThreadState.RECEIVING_DATA if "receive" in stack.roles else ThreadState.MAKING_DATA
    if waits and stack.owner != USER and (stack.category == "log" or "compiler" in stack.roles):
        return ThreadState.IDLE
    if stack.stratum == CHECKPOINT or stack.category == "checkpoint":
        return ThreadState.CHECKPOINTING
    # the text of a tensor is logging, and waits for its device
    if stack.category == "log" and "sync" not in stack.roles:
        return ThreadState.LOGGING
    if "compiler" in stack.roles:
        return ThreadState.COMPILING
    if "ranks" in stack.roles:
        return ThreadState.WAITING_FOR_RANKS
    return ThreadState.SYNC if "sync" in stack.roles else None


def _waiting_state(stack: Stack, *, waits: bool) -> ThreadState | None:
    """Return the state of a waiting thread. A waiting thread of a library is idle."""
    if waits and ("launcher" in stack.leaf_roles or "child" in stack.roles):
        return ThreadState.CHILD
    network = "network" in stack.roles
    if "pool" in stack.leaf_roles or ((waits or network) and stack.owner != USER):
        return ThreadState.IDLE
    if network:
        return ThreadState.NETWORK
    return ThreadState.LOCK if waits else None


def _lines(entries: list[_Entry], rows: Table, count: int) -> Iterator[LineCost]:
    """Yield the lines with the most of a thread's samples, whatever it did there."""
    weights = _sums(entries, "site")
    total = sum(weights.values()) or 1
    for site, ns in [item for item in sorted(weights.items(), key=_largest_first) if item[0].file][:_MAX_LINES]:
        share = ns / total
        if share < _MIN_LINE_SHARE:
            break
        below = [entry for entry in entries if entry.stack.site == site]
        low, high = share_interval(share, _effective_size(rows, below, count))
        mix = {state: state_ns / NS_PER_S for state, state_ns in _sums(below, "state").items()}
        callee, samples = most_frequent(_sums(below, "calls")), round(share * count)
        yield LineCost(site, callee, ns / NS_PER_S, share, low, high, samples, mix)


def _sums(entries: Iterable[_Entry], field: Literal["state", "site", "calls"]) -> dict[Any, float]:
    """Return the ns by state of the thread, or by line, or by what the line calls."""
    sums = defaultdict[Any, float](float)
    for entry in entries:
        sums[entry.state if field == "state" else getattr(entry.stack, field)] += entry.ns
    return sums


def _largest_first(item: tuple[Any, float]) -> tuple[float, Any]:
    return -item[1], item[0]


def _key_ns(rows: Table) -> dict[_Key, int]:
    keys, group = np.unique(rows["stack"].astype(np.int64) * 3 + rows["active"] + 1, return_inverse=True)
    spans = np.bincount(group, (rows["end"] - rows["begin"]).astype(np.float64), minlength=len(keys))
    return {(key // 3, key % 3 - 1): round(span) for key, span in zip(keys.tolist(), spans.tolist(), strict=True)}


def _effective_size(rows: Table, entries: Iterable[_Entry], count: int) -> float:
    """Return the number of independent samples behind the share of `entries`, which is lower than `count` if the
    program has long phases."""
    ns = (rows["end"] - rows["begin"]).astype(np.float64)
    numbers, row = np.unique(rows["stack"], return_inverse=True)
    chosen = defaultdict[int, float](float)
    for entry in entries:
        chosen[entry.number] += entry.ns
    part_of_stack = np.array([chosen[number] for number in numbers.tolist()]) / np.bincount(row, ns)
    first, last = int(rows["begin"].min()), int(rows["end"].max())
    edges = times(np.linspace(first, last, MAX_BATCHES + 1)[1:-1])
    unsampled = max(0.0, 1 - float(ns.sum()) / max(1, last - first))
    part, whole = (sum_in_batches(edges, rows["begin"], each) for each in (ns * part_of_stack[row], ns))
    return effective_sample_size(part, whole, count, unsampled)
