"""What each thread of a recorded window was doing, by its samples: the answer for a job that one attached to."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from profiler.analyse.activities import IDLE, Evidence, what
from profiler.analyse.frames import Stack, read_stack
from profiler.base.samples import SOURCE_LINE, THREAD_NAME
from profiler.run.model import Doing, Run, Site, Table

_WORKER: Final = "/torch/utils/data/_utils/worker.py"
_TORCH: Final = "/torch/"
_FEW: Final = 5
"""Samples of a line below which nothing is said of the GIL there."""
_LEAST: Final = 0.1
"""A thread beside the main one that was idle but for this share of its samples is of no interest."""


def doings(run: Run) -> tuple[Doing, ...]:
    """The main thread of every sampled process, and its other threads that were not idle; in order of process."""
    if not len(run.stacks):
        return ()
    lines = dict(_source_lines(run))
    found = []
    for pid in dict.fromkeys(run.stacks["pid"].tolist()):
        process = _Process(run, pid, lines)
        found += [process.doing(tid) for tid in dict.fromkeys(process.stacks["tid"].tolist())]
    order = [int(entry["pid"]) for entry in _listed(run)]
    return tuple(
        sorted(filter(_of_interest, found), key=lambda doing: (_place(doing.pid, order), doing.tid != doing.pid))
    )


def _of_interest(doing: Doing) -> bool:
    return doing.tid == doing.pid or dict(doing.parts).get(IDLE, 0.0) < 1 - _LEAST


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

    def __init__(self, run: Run, pid: int, lines: Mapping[tuple[str, int], str]) -> None:
        self._run = run
        self._pid = pid
        self._lines = lines
        self.stacks: Table = run.stacks[run.stacks["pid"] == pid]
        self._gil: Table = run.gil_stacks[run.gil_stacks["pid"] == pid]
        self._samples: Table = run.samples[run.samples["pid"] == pid]
        self._gil_window = float(self._named("stacks.gil_window_s")["value"].sum()) * 1e9
        used = np.unique(self.stacks["stack"]).tolist()
        self._frames = {number: run.stack_frames[number] for number in used}
        self._has_torch = any(_TORCH in site.file for frames in self._frames.values() for site in frames)
        self._has_device = bool(run.info.devices) or run.info.facts.get("device", "cpu") != "cpu"
        self._is_worker = any(map(_in_worker, (site for frames in self._frames.values() for site in frames)))

    def doing(self, tid: int) -> Doing:
        """The answer for one thread."""
        rows = self.stacks[self.stacks["tid"] == tid]
        weights = _summed(rows)
        total = sum(weights.values()) or 1
        held = self._held_at_leaves(tid, weights, total)
        answers: dict[str, int] = defaultdict(int)
        sites: dict[tuple[str, Site], _Group] = defaultdict(_Group)
        for (number, active), part in weights.items():
            answer, stack = self._read(number, active, held)
            answers[answer] += part
            group = sites[answer, stack.site]
            group.weight += part
            group.calls[stack.calls] += part
        parts = sorted(((name, part / total) for name, part in answers.items()), key=lambda part: (-part[1], part[0]))
        answer, share = parts[0]
        of_answer = {site: group for (name, site), group in sites.items() if name == answer}
        site = max(of_answer, key=lambda site: (of_answer[site].weight, site))
        count = self._count(total)
        low, high = _interval(share, count)
        return Doing(
            pid=self._pid,
            tid=tid,
            process=self._name,
            thread="" if tid == self._pid else self._thread_name(tid),
            answer=answer,
            share=share,
            low=low,
            high=high,
            samples=count,
            site=site if site.file else None,
            text=self._lines.get((site.file, site.line), ""),
            calls=max(of_answer[site].calls, key=lambda calls: (of_answer[site].calls[calls], calls)),
            on_cpu=self._on_cpu(tid),
            gil=self._held(tid),
            parts=tuple(parts),
        )

    def _read(self, number: int, active: int, held: Mapping[Site, float]) -> tuple[str, Stack]:
        frames = self._frames[number]
        stack = read_stack(frames)
        leaf = frames[-1] if frames else stack.site
        text = self._lines.get((stack.site.file, stack.site.line), "")
        return what(frames, stack, Evidence(active, held.get(leaf), text, self._has_torch, self._has_device)), stack

    def _held_at_leaves(self, tid: int, weights: Mapping[tuple[int, int], int], total: int) -> dict[Site, float]:
        """Innermost frame -> of the time in which the thread was there, the share in which it held the GIL."""
        if not self._gil_window:
            return {}
        seen, held = defaultdict[Site, float](float), defaultdict[Site, float](float)
        for (number, _), part in weights.items():
            seen[_leaf(self._frames[number])] += part / total
        rows = self._gil[self._gil["tid"] == tid]
        for (number, _), part in _summed(rows).items():
            held[_leaf(self._run.stack_frames[number])] += part / self._gil_window
        looks = self._count(total)
        return {leaf: held[leaf] / share for leaf, share in seen.items() if share * looks >= _FEW}

    def _named(self, name: str) -> Table:
        if name not in self._run.names:
            return self._samples[:0]
        rows: Table = self._samples[self._samples["name"] == self._run.names.index(name)]
        return rows

    def _held(self, tid: int) -> float | None:
        if not self._gil_window:
            return None
        rows = self._gil[self._gil["tid"] == tid]
        return min(1.0, float((rows["end"] - rows["begin"]).sum()) / self._gil_window)

    def _on_cpu(self, tid: int) -> float | None:
        rows = self._named("thread.cpu_s")
        rows = rows[rows["tid"] == tid]
        passed = float(rows["time"].max() - rows["time"].min()) / 1e9 if len(rows) > 1 else 0.0
        return min(1.0, float(rows["value"].max() - rows["value"].min()) / passed) if passed else None

    def _count(self, total: int) -> int:
        """About how many samples make up `total` ns of one thread: a row may stand for several."""
        period = (
            float(np.median(self._named("stacks.period_s")["value"])) if len(self._named("stacks.period_s")) else 0.0
        )
        return max(1, round(total / 1e9 / period)) if period else max(1, len(self.stacks))

    def _thread_name(self, tid: int) -> str:
        for row in self._samples[self._samples["tid"] == tid]:
            name: str = self._run.names[row["name"]]
            if name.startswith(THREAD_NAME):
                return name[len(THREAD_NAME) :]
        return f"thread {tid}"

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


def _interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval: it holds near 0 and 1 too."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)
