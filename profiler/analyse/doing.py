"""What each thread of a recorded window was doing, by its samples: the answer for a job that one attached to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from profiler.analyse.activities import Evidence, what
from profiler.analyse.blocks import MOST, effective, in_blocks
from profiler.analyse.frames import Stack, read_stack
from profiler.analyse.gil import wilson
from profiler.analyse.model import LineCost, ThreadActivity, ThreadState
from profiler.analyse.places import places_of
from profiler.analyse.timeline import covered_within, times, union
from profiler.analyse.window import NS_PER_S, select
from profiler.core.samples import SOURCE_LINE, THREAD_NAME
from profiler.run.filter import rows_by
from profiler.run.model import Run, Site, Table

_WORKER: Final = "/torch/utils/data/_utils/worker.py"
_TORCH: Final = "/torch/"
_FEW: Final = 5
"""Samples of a line below which nothing is said of the GIL there."""
_LINES: Final = 4
_NAMED: Final = 0.02
"""Lines of a thread that are named at most, and the share below which none is."""
_LEAST: Final = 0.1
"""A thread beside the main one that was idle but for this share of its samples is of no interest."""


def thread_activities(run: Run) -> tuple[ThreadActivity, ...]:
    """The main thread of every sampled process, and its other threads that were not idle; in order of process."""
    if not len(run.stacks):
        return ()
    lines = dict(_source_lines(run))
    holders, samples = rows_by(run.gil_stacks, "pid"), rows_by(run.samples, "pid")
    found = list[ThreadActivity]()
    for pid, stacks in rows_by(run.stacks, "pid").items():
        process = _Process(run, lines, stacks, holders.get(pid, run.gil_stacks[:0]), samples.get(pid, run.samples[:0]))
        found += process.doings()
    order = [int(entry["pid"]) for entry in _listed(run)]
    return tuple(
        sorted(filter(_of_interest, found), key=lambda doing: (_place(doing.pid, order), doing.tid != doing.pid))
    )


def _of_interest(thread: ThreadActivity) -> bool:
    return thread.tid == thread.pid or dict(thread.states).get(ThreadState.IDLE, 0.0) < 1 - _LEAST


def _place(pid: int, order: list[int]) -> tuple[int, int]:
    return (order.index(pid) if pid in order else len(order), pid)


def _listed(run: Run) -> list[Mapping[str, Any]]:
    """What the recorder said of the processes; nothing where it said nothing."""
    listed = run.info.facts.get("processes", ())
    return [entry for entry in listed if isinstance(entry, dict) and "pid" in entry] if isinstance(listed, list) else []


def _source_lines(run: Run) -> Iterator[tuple[tuple[str, int], str]]:
    for name in run.names:
        if name.startswith(SOURCE_LINE):
            file, _, rest = name[len(SOURCE_LINE) :].partition(":")
            line, _, text = rest.partition(":")
            if line.isdecimal():
                yield (file, int(line)), text


@dataclass(slots=True)
class _Group:
    weight: int = 0
    calls: Counter[str] = field(default_factory=Counter)


class _Process:
    """The samples of one process."""

    def __init__(
        self, run: Run, lines: Mapping[tuple[str, int], str], stacks: Table, holders: Table, samples: Table
    ) -> None:
        self._run = run
        self._pid = int(stacks["pid"][0])
        self._lines = lines
        self._threads = rows_by(stacks, "tid")
        self._holders = rows_by(holders, "tid")
        self._none = holders[:0]
        self._samples = samples
        windows, periods = self._named("stacks.gil_window_s"), self._named("stacks.period_s")
        end, length = times(windows["time"]), times(np.rint(windows["value"] * NS_PER_S))
        self._windows = union(end - length, end)
        self._period = float(np.median(periods["value"])) if len(periods) else 0.0
        self._clocks = rows_by(self._named("thread.cpu_s"), "tid")
        self._names = dict(self._thread_names())
        used = np.unique(stacks["stack"]).tolist()
        self._places = places_of(run)
        self._frames = {number: run.stack_frames[number] for number in used}
        self._has_torch = any(_TORCH in site.file for frames in self._frames.values() for site in frames)
        self._has_device = bool(run.info.devices) or run.info.facts.get("device", "cpu") != "cpu"
        self._is_worker = any(map(_in_worker, (site for frames in self._frames.values() for site in frames)))

    def doings(self) -> Iterator[ThreadActivity]:
        """The answer for each thread."""
        return (self._doing(tid, rows) for tid, rows in self._threads.items())

    def _doing(self, tid: int, rows: Table) -> ThreadActivity:
        weights = _summed(rows)
        total = sum(weights.values()) or 1
        holding, looked = self._holding(tid, rows)
        held = self._held_at_leaves(holding, looked, weights, rows) if looked else {}
        answers: dict[ThreadState, int] = defaultdict(int)
        of_state: dict[tuple[int, int], ThreadState] = {}
        sites: dict[tuple[ThreadState, Site], _Group] = defaultdict(_Group)
        at: dict[tuple[int, int], Site] = {}
        for (number, active), part in weights.items():
            answer, stack = self._read(number, active, held)
            of_state[number, active], at[number, active] = answer, stack.site
            answers[answer] += part
            group = sites[answer, stack.site]
            group.weight += part
            group.calls[stack.calls] += part
        parts = sorted(((name, part / total) for name, part in answers.items()), key=lambda part: (-part[1], part[0]))
        answer, share = parts[0]
        of_answer = {site: group for (name, site), group in sites.items() if name == answer}
        site = max(of_answer, key=lambda site: (of_answer[site].weight, site))
        count = self._count(rows, total)
        low, high = wilson(share, _independent(rows, {key for key, name in of_state.items() if name == answer}, count))
        return ThreadActivity(
            pid=self._pid,
            tid=tid,
            process=self._name,
            thread="" if tid == self._pid else self._names.get(tid, f"thread {tid}"),
            state=answer,
            share=share,
            low=low,
            high=high,
            samples=count,
            site=site if site.file else None,
            source_line=self._lines.get((site.file, site.line), ""),
            calls=max(of_answer[site].calls, key=lambda calls: (of_answer[site].calls[calls], calls)),
            on_cpu=self._on_cpu(tid),
            gil=min(1.0, float((holding["end"] - holding["begin"]).sum()) / looked) if looked else None,
            states=tuple(parts),
            lines=tuple(_lines(sites, at, rows, count)),
        )

    def _read(self, number: int, active: int, held: Mapping[Site, float]) -> tuple[ThreadState, Stack]:
        frames = self._frames[number]
        stack = read_stack(frames, self._places)
        leaf = frames[-1] if frames else stack.site
        text = self._lines.get((stack.site.file, stack.site.line), "")
        return what(frames, stack, Evidence(active, held.get(leaf), text, self._has_torch, self._has_device)), stack

    def _holding(self, tid: int, rows: Table) -> tuple[Table, int]:
        """The thread's samples as the GIL's holder, and the ns of windows in which it lived and would be seen."""
        holding = self._holders.get(tid, self._none)
        seen = (rows, holding) if len(holding) else (rows,)
        begin, end = min(int(one["begin"].min()) for one in seen), max(int(one["end"].max()) for one in seen)
        return holding, int(covered_within(self._windows, [begin], [end])[0])

    def _held_at_leaves(
        self, holding: Table, looked: int, weights: Mapping[tuple[int, int], int], rows: Table
    ) -> dict[Site, float]:
        """Innermost frame -> of the time in which the thread was there, the share in which it held the GIL."""
        seen, held = defaultdict[Site, float](float), defaultdict[Site, float](float)
        total = sum(weights.values()) or 1
        for (number, _), part in weights.items():
            seen[_leaf(self._frames[number])] += part / total
        for (number, _), part in _summed(holding).items():
            held[_leaf(self._run.stack_frames[number])] += part / looked
        looks = self._count(rows, total)
        return {leaf: held[leaf] / share for leaf, share in seen.items() if share * looks >= _FEW}

    def _named(self, name: str) -> Table:
        if name not in self._run.names:
            return self._samples[:0]
        rows: Table = self._samples[self._samples["name"] == self._run.names.index(name)]
        return rows

    def _on_cpu(self, tid: int) -> float | None:
        rows = self._clocks.get(tid, self._samples[:0])
        passed = float(rows["time"].max() - rows["time"].min()) / 1e9 if len(rows) > 1 else 0.0
        return min(1.0, float(rows["value"].max() - rows["value"].min()) / passed) if passed else None

    def _count(self, rows: Table, total: int) -> int:
        """About how many samples make up `total` ns of one thread: a row may stand for several."""
        return max(1, round(total / NS_PER_S / self._period)) if self._period else max(1, len(rows))

    def _thread_names(self) -> Iterator[tuple[int, str]]:
        titles = {number: name for number, name in enumerate(self._run.names) if name.startswith(THREAD_NAME)}
        named = select(self._samples, np.isin(self._samples["name"], list(titles)))[::-1]  # the first one said wins
        for tid, number in zip(named["tid"].tolist(), named["name"].tolist(), strict=True):
            yield tid, titles[number][len(THREAD_NAME) :]

    @property
    def _name(self) -> str:
        said = next((entry for entry in _listed(self._run) if entry["pid"] == self._pid), {})
        if self._is_worker:
            return "loader worker"
        rank = said.get("rank")
        if rank is not None:
            return f"rank {rank}"
        own = self._run.steps[self._run.steps["pid"] == self._pid]
        if len(own) and len(np.unique(self._run.steps["rank"])) > 1:
            return f"rank {own['rank'][0]}"
        return str(said.get("name", "")) or ("training process" if len(own) else "process")


def _lines(
    sites: Mapping[tuple[ThreadState, Site], _Group], at: Mapping[tuple[int, int], Site], rows: Table, count: int
) -> Iterator[LineCost]:
    """The lines with the most of a thread's samples, whatever it did there. `at`: (stack, active) -> line."""
    weights, mixes = Counter[Site](), defaultdict[Site, dict[str, float]](dict)
    calls = defaultdict[Site, Counter[str]](Counter)
    for (answer, site), group in sites.items():
        weights[site] += group.weight
        mixes[site][answer] = group.weight / NS_PER_S
        calls[site] += group.calls
    total = weights.total() or 1
    for site in sorted(filter(lambda site: site.file, weights), key=lambda site: (-weights[site], site))[:_LINES]:
        share = weights[site] / total
        if share < _NAMED:
            break
        low, high = wilson(share, _independent(rows, {key for key, place in at.items() if place == site}, count))
        most = max(calls[site], key=lambda name: (calls[site][name], name))
        samples = round(share * count)
        yield LineCost(site, most, weights[site] / NS_PER_S, share, low, high, samples, mixes[site])


def _in_worker(site: Site) -> bool:
    """Whether it is a loader's worker at work: any process that imports torch runs that file once."""
    return site.file.endswith(_WORKER) and site.function.rpartition(".")[2] != "<module>"


def _leaf(frames: tuple[Site, ...]) -> Site:
    return frames[-1] if frames else Site("", 0, "")


def _summed(rows: Table) -> dict[tuple[int, int], int]:
    """(stack, active) -> ns."""
    keys, group = np.unique(rows["stack"].astype(np.int64) * 3 + rows["active"] + 1, return_inverse=True)
    spans = np.bincount(group, (rows["end"] - rows["begin"]).astype(np.float64), minlength=len(keys))
    return {(key // 3, key % 3 - 1): round(span) for key, span in zip(keys.tolist(), spans.tolist(), strict=True)}


def _independent(rows: Table, states: set[tuple[int, int]], count: int) -> float:
    """As how many independent samples the rows count for the share of (stack, active) in `states`: phases are fewer."""
    key = rows["stack"].astype(np.int64) * 3 + rows["active"] + 1
    ns = (rows["end"] - rows["begin"]).astype(np.float64)
    own = np.isin(key, [number * 3 + active + 1 for number, active in states])
    first, last = int(rows["begin"].min()), int(rows["end"].max())
    edges = times(np.linspace(first, last, MOST + 1)[1:-1])
    unseen = max(0.0, 1 - float(ns.sum()) / max(1, last - first))
    return effective(in_blocks(edges, rows["begin"], ns * own), in_blocks(edges, rows["begin"], ns), count, unseen)
