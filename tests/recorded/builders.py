"""Builds synthetic `Run` objects in memory: what the tests of everything right of the wall feed on.

    builder = RunBuilder(device="host")
    builder.step(0, 10 * MS, tokens=100)
    builder.region("tokenize", 0, 2 * MS)
    builder.call(CallKind.SYNC, 4 * MS, 9 * MS, blocked=5 * MS, site="train.py:88")
    builder.activity(ActivityKind.KERNEL, 3 * MS, 8 * MS)
    builder.counter("syncs", 1, step=0)
    run = builder.build()

All times are integer nanoseconds; nothing is written to disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiler.core.errors import Notice
from profiler.run.model import CollectorStatus, Run, RunInfo, Site, Table
from profiler.run.tables import SCHEMA, TABLES, ActivityKind, BoundaryKind, CallKind, CountKind, StageKind, ValueKind

US = 1_000
MS = 1_000_000
S = 1_000_000_000
PID = 100
TID = 101
"""The process and the stepping thread of a built run unless a record says otherwise."""
MAIN = (Site("train.py", 1, "main"),)

_NUMPY = {"q": "<i8", "i": "<i4", "d": "<f8"}


def dtype_of(table: str) -> np.dtype[np.void]:
    """The layout of `table` in a loaded run: its fields, `pid` where it has none, and `rank` of the recorded ones."""
    fields = [(name, _NUMPY[code]) for name, code in TABLES[table]]
    if table not in ("samples", "stacks", "gil_stacks"):
        fields += [("pid", "<i8"), ("rank", "<i4")]
    return np.dtype(fields)


def parse_site(site: Site | str) -> Site:
    """`train.py:88` or `train.py:88:function` as a Site."""
    if isinstance(site, Site):
        return site
    file, line, *function = site.split(":")
    return Site(file, int(line), function[0] if function else "")


class RunBuilder:
    """Collects records and gives a Run. Every method returns the builder's new record's index or nothing."""

    def __init__(
        self,
        *,
        level: str = "standard",
        label: str = "",
        collectors: Iterable[CollectorStatus] = (),
        host: Mapping[str, Any] | None = None,
        devices: Iterable[Mapping[str, Any]] = (),
        versions: Mapping[str, str] | None = None,
        problems: Iterable[Notice] = (),
        state: str = "complete",
        span: tuple[int, int | None] = (0, None),
        **facts: Any,
    ) -> None:
        self._info: dict[str, Any] = {
            "level": level,
            "label": label,
            "state": state,
            "collectors": tuple(collectors),
            "host": dict(host or {}),
            "devices": tuple(devices),
            "versions": dict(versions or {}),
            "facts": facts,
            "begin": span[0],
            "end": span[1],
        }
        self._problems = tuple(problems)
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self._bulk: dict[str, list[Table]] = {name: [] for name in TABLES}
        self._texts: dict[str, int] = {}
        self._sites: dict[Site, int] = {}
        self._stacks: dict[tuple[Site, ...], int] = {}

    def name(self, text: str) -> int:
        """Number of `text` in the run's names."""
        return self._texts.setdefault(text, len(self._texts))

    def site(self, site: Site | str | None) -> int:
        """Number of `site` in the run's sites; -1 for None."""
        return -1 if site is None else self._sites.setdefault(parse_site(site), len(self._sites))

    def _add(self, table: str, /, **fields: Any) -> None:
        dtype = dtype_of(table)
        assert dtype.names is not None
        fields = {"pid": PID, "rank": 0, **fields}
        self._rows[table].append(tuple(fields.get(name, 0) for name in dtype.names))

    def step(
        self, begin: int, end: int, *, tokens: int = 0, warmup: bool = False, tid: int = TID, **fields: int
    ) -> int:
        """One step; `fields` may hold index, thread_cpu, process_cpu, device_cpu, pid, rank. Gives its index."""
        index = fields.pop("index", len(self._rows["steps"]))
        self._add("steps", begin=begin, end=end, index=index, tokens=tokens, warmup=int(warmup), tid=tid, **fields)
        return index

    def steps(self, count: int, length: int, *, begin: int = 0, **fields: Any) -> None:
        """`count` contiguous steps of `length` ns from `begin` on."""
        for number in range(count):
            self.step(begin + number * length, begin + (number + 1) * length, **fields)

    def region(self, name: str, begin: int, end: int, *, depth: int = 0, tid: int = TID, pid: int = PID) -> None:
        self._add("regions", begin=begin, end=end, tid=tid, name=self.name(name), depth=depth, pid=pid)

    def call(
        self,
        kind: CallKind,
        begin: int,
        end: int,
        *,
        blocked: int = 0,
        site: Site | str | None = None,
        tid: int = TID,
        **fields: int,
    ) -> None:
        """One runtime call; `fields` may hold bytes, correlation, stream, pid, rank."""
        self._add(
            "calls", begin=begin, end=end, blocked=blocked, kind=int(kind), site=self.site(site), tid=tid,
            name=self.name(kind.name.lower()), **fields,
        )  # fmt: skip

    def named_call(
        self,
        kind: CallKind,
        name: str,
        begin: int,
        end: int,
        *,
        site: Site | str | None = None,
        tid: int = TID,
        **fields: int,
    ) -> None:
        """One call with the name that a hook gives it: item, dataset, ...; `fields` may hold pid, rank."""
        number = self.name(name)
        self._add("calls", begin=begin, end=end, kind=int(kind), site=self.site(site), tid=tid, name=number, **fields)

    def library_call(self, begin: int, site: Site | str, *, tid: int = TID) -> None:
        """The line of a library that makes the call which began then."""
        self._add("library_calls", time=begin, tid=tid, site=self.site(site))

    def activity(self, kind: ActivityKind, begin: int, end: int, *, name: str = "kernel", **fields: int) -> None:
        """One activity; `fields` may hold bytes, correlation, stream, device, pid, rank."""
        self._add("activities", begin=begin, end=end, kind=int(kind), name=self.name(name), **fields)

    def counter(self, name: str, value: float, *, step: int, time: int = 0, pid: int = PID) -> None:
        self._add("values", time=time, step=step, value=value, name=self.name(name), kind=ValueKind.COUNTER, pid=pid)

    def gauge(self, name: str, value: float, *, step: int, time: int = 0, pid: int = PID) -> None:
        self._add("values", time=time, step=step, value=value, name=self.name(name), kind=ValueKind.GAUGE, pid=pid)

    def sample(self, name: str, time: int, value: float, *, pid: int = PID, tid: int = 0) -> None:
        """One outside sample; tid 0 is the whole process, pid 0 and tid 0 the machine."""
        self._add("samples", time=time, pid=pid, tid=tid, value=value, name=self.name(name))

    def stack(
        self, frames: Iterable[Site | str], begin: int, end: int, *, active: int = 1, tid: int = TID, pid: int = PID
    ) -> None:
        """One stack sample, frames outermost first."""
        self._add("stacks", begin=begin, end=end, stack=self.frames(frames), active=active, tid=tid, pid=pid)

    def frames(self, frames: Iterable[Site | str]) -> int:
        """Number of a stack in the run's stack_frames."""
        key = tuple(parse_site(frame) for frame in frames)
        return self._stacks.setdefault(key, len(self._stacks))

    def holder(self, frames: Iterable[Site | str], begin: int, end: int, *, tid: int = TID, pid: int = PID) -> None:
        """One sample of the thread that held the GIL, in a window that `gil_window` states."""
        self._add("gil_stacks", begin=begin, end=end, stack=self.frames(frames), active=1, tid=tid, pid=pid)

    def gil_window(self, begin: int, end: int) -> None:
        """A window in which the GIL's holder was sampled."""
        self.sample("stacks.gil_window_s", end, (end - begin) / S)

    def boundary(
        self, time: int, kind: BoundaryKind = BoundaryKind.OPTIMIZER, *, name: str = "Adam", flag: int = 0
    ) -> None:
        """A moment at which a step may end: with one of them a run counts as one whose steps hooks found."""
        self._add("boundaries", time=time, tid=TID, name=self.name(name), kind=int(kind), flag=flag)

    def count(
        self, time: int, kind: CountKind, name: str, count: int, *, size: int = 0, site: Site | str | None = None,
        pid: int = PID,
    ) -> None:  # fmt: skip
        """What was counted until `time`."""
        numbers = {"name": self.name(name), "site": self.site(site), "kind": int(kind)}
        self._add("counts", time=time, count=count, bytes=size, pid=pid, **numbers)

    def thread_clocks(self, time: int, cpu: int, delay: int, *, tid: int = TID, pid: int = PID) -> None:
        """One reading of a thread's clocks: CPU time, and time without a core although it could have run."""
        self._add("thread_clocks", time=time, cpu=cpu, delay=delay, tid=tid, pid=pid)

    def stage(self, kind: StageKind, begin: int, end: int | None = None, *, object_id: int = 0) -> None:
        """What a hook saw of a stage; without `end` a change of mode."""
        name = self.name(kind.name.lower())
        end = begin if end is None else end
        self._add("stages", begin=begin, end=end, object=object_id, tid=TID, name=name, kind=int(kind))

    def bulk(self, table: str, count: int, **columns: Any) -> None:
        """`count` records at once from arrays or scalars; pid, tid default to PID, TID, the rest to 0."""
        records = np.zeros(count, dtype_of(table))
        names = records.dtype.names or ()
        for name, value in {"pid": PID, "tid": TID, **columns}.items():
            if name in names:
                records[name] = value
        self._bulk[table].append(records)

    def build(self) -> Run:
        tables = {}
        for name in TABLES:
            rows = np.array(self._rows[name], dtype_of(name))
            tables[name] = np.concatenate([rows, *self._bulk[name]])
            tables[name].flags.writeable = False
        info = RunInfo(
            schema=SCHEMA, run_id="synthetic", started_at="2025-01-01T00:00:00Z", argv=("train.py",), **self._info
        )
        return Run(
            path=Path("synthetic"),
            info=info,
            names=tuple(self._texts),
            sites=tuple(self._sites),
            stack_frames=tuple(self._stacks),
            problems=self._problems,
            **tables,
        )


def timeline(text: str, *, tick: int = 1, **options: Any) -> Run:
    """A run of records that semicolons separate, with times in ticks of `tick` ns.

        step BEGIN END; warm-up BEGIN END; steps COUNT LENGTH; kernel BEGIN END; upload BEGIN END
        CALL BEGIN END [BLOCKED] [FILE:LINE]; REGION BEGIN END; stack FRAME>FRAME BEGIN END
        counter NAME VALUE ... (of consecutive steps); gauge NAME VALUE ...; sample NAME TIME VALUE

    Fields follow as `name=number`: `thread`, `pid`, `depth`, `tokens`, `stream`, ...
    """
    builder = RunBuilder(**options)
    add_records(builder, text, tick=tick)
    return builder.build()


def add_records(builder: RunBuilder, text: str, *, tick: float = 1, begin: int = 0) -> None:
    """Add the records of a `timeline`, `begin` ns later."""
    for record in text.split(";"):
        kind, *words = record.split()
        fields = {key: int(value) for key, _, value in (word.partition("=") for word in words if "=" in word)}
        if "thread" in fields:
            fields["tid"] = fields.pop("thread")
        names = [word for word in words if "=" not in word and not _is_number(word)]
        numbers = [float(word) for word in words if _is_number(word)]
        if kind in ("counter", "gauge"):
            add = builder.counter if kind == "counter" else builder.gauge
            for step, value in enumerate(numbers, fields.pop("step", 0)):
                add(names[0], value, step=step, **fields)
            continue
        if kind == "sample":
            builder.sample(names[0], begin + round(numbers[0] * tick), numbers[1], **fields)
            continue
        if kind == "steps":
            builder.steps(int(numbers[0]), round(numbers[1] * tick), begin=begin, **fields)
            continue
        start, end = (begin + round(number * tick) for number in numbers[:2])
        if kind in ("step", "warm-up"):
            builder.step(start, end, warmup=kind == "warm-up", **fields)
        elif kind in ("kernel", "upload"):
            builder.activity(ActivityKind.KERNEL if kind == "kernel" else ActivityKind.H2D, start, end, **fields)
        elif kind == "stack":
            builder.stack(names[0].split(">"), start, end, **fields)
        elif kind.upper() in CallKind.__members__:
            site = next(iter(names), None)
            builder.call(
                CallKind[kind.upper()], start, end, blocked=round(sum(numbers[2:]) * tick), site=site, **fields
            )
        else:
            builder.region(kind.replace("_", " "), start, end, **fields)


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-?[\d.]+|nan", word) is not None
