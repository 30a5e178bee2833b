"""Runs and what was found in them as pandas data frames: texts instead of numbers that point to them, SI units.

A run gives `frame` (any table), `steps` and `thread_cpu`; analysed values give `measures`, `series` and `rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from profiler.analyse.model import Analysis, Measure
from profiler.core.errors import ProfilerError
from profiler.core.samples import THREAD_NAME
from profiler.run import tables
from profiler.run.model import Run, Site, Table

if TYPE_CHECKING:
    import pandas as pd

_MOMENTS: Final = ("begin", "end", "time")
_DURATIONS: Final = ("blocked", "thread_cpu", "process_cpu", "device_cpu")
_NS: Final = 1e-9
_UNUSED: Final = ("pad",)
_KINDS: Final = {
    "calls": tables.CallKind,
    "activities": tables.ActivityKind,
    "values": tables.ValueKind,
    "boundaries": tables.BoundaryKind,
}


def frame(run: Run, table: str) -> pd.DataFrame:
    """One table of `run`, a row a record.

    Moments are seconds from the run's begin and durations seconds (float64). `name`, `site` and `kind` are texts; a
    `stack` is one text too, its frames outermost first with ` > ` between them. What is not known is missing (`isna`).

    :param table: one of `profiler.run.tables.TABLES`: steps, regions, calls, ...
    :raises ProfilerError: no such table.
    """
    import pandas as pd

    if table not in tables.TABLES:
        raise ProfilerError(f"a run has no table {table!r}: choose from {', '.join(tables.TABLES)}")
    rows: Table = getattr(run, table)
    names = [name for name in rows.dtype.names or () if name not in _UNUSED]
    return pd.DataFrame({name: _column(run, table, name, rows) for name in names})


def steps(run: Run) -> pd.DataFrame:
    """Every step of `run`, a row each: the table `steps`, its wall time, and all that was counted and gauged in it.

    `wall` is in seconds. A step that does not mention a counter counted 0 of it; a gauge that it did not set is
    missing. A counter or gauge with the name of another column gets `_value` behind its name.
    """
    import pandas as pd

    every, values = frame(run, "steps"), frame(run, "values")
    every["wall"] = every["end"] - every["begin"]
    at = pd.MultiIndex.from_frame(every[["pid", "index"]])
    taken = {name: f"{name}_value" for name in every}
    for kind, how, absent in (("counter", "sum", 0.0), ("gauge", "last", np.nan)):
        own = values[values["kind"] == kind]
        wide = own.pivot_table(index=["pid", "step"], columns="name", values="value", aggfunc=how, fill_value=absent)
        wide = wide.reindex(at, fill_value=absent).rename(
            columns=lambda name: f"{name}_value" if name in taken else name
        )
        every = pd.concat([every, wide.set_axis(every.index)], axis="columns")
    return every


def thread_cpu(run: Run) -> pd.DataFrame:
    """CPU use of the program's threads over time, in cores: a row a sample, a column a thread (`name tid`).

    Each value is the mean since the sample before; the index is seconds from the run's begin. The main thread of a
    process, whose tid is the pid, is called `main`; where a thread was not there it is missing.
    """
    samples = frame(run, "samples")
    cpu = samples[samples["name"] == "thread.cpu_s"]
    wide = cpu.pivot_table(index="time", columns=["pid", "tid"], values="value", aggfunc="last")
    names = samples[samples["name"].str.startswith(THREAD_NAME, na=False)].groupby(["pid", "tid"])["name"].last()
    titles = {key: name.removeprefix(THREAD_NAME) for key, name in names.items()}
    cores = wide.diff().div(wide.index.to_series().diff(), axis=0).iloc[1:]
    cores.columns = [f"{'main' if pid == tid else titles.get((pid, tid), 'thread')} {tid}" for pid, tid in wide.columns]
    return cores


def measures(sides: Mapping[str, Mapping[str, Measure]]) -> pd.DataFrame:
    """Measures side by side, a row a measure and a column a side, in their units; what was not measured is missing.

    :param sides: label -> `Analysis.measures`, `.breakdown`, `.device_breakdown` or `Side.measures`.
    """
    import pandas as pd

    names = dict.fromkeys(name for side in sides.values() for name in side)
    columns = {label: [side[name].value if name in side else None for name in names] for label, side in sides.items()}
    return pd.DataFrame(columns, index=list(names), dtype="float64")


def series(analysis: Analysis, name: str) -> pd.Series:
    """One of `Analysis.series` over the seconds since the measured window began.

    :param name: device_utilization (0..1), host_cpu (cores), tokens_per_s, ...
    :raises ProfilerError: this run has no such series.
    """
    import pandas as pd

    for one in analysis.series:
        if one.name == name:
            return pd.Series(one.values, index=pd.Index(one.times, name="s"), name=name, dtype="float64")
    known = ", ".join(one.name for one in analysis.series) or "none at all"
    raise ProfilerError(f"this run has no series {name!r}; it has {known}")


def rows(values: Iterable[Any]) -> pd.DataFrame:
    """A row for each of `values`, which are of one frozen type: `Analysis.idle`, `.hot`, ratios; a site is one text."""
    import pandas as pd

    return pd.DataFrame([{one.name: _plain(getattr(value, one.name)) for one in fields(value)} for value in values])


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Site) else value


def _column(run: Run, table: str, name: str, rows: Table) -> Any:
    """The values of one column; pandas wants them contiguous and in the machine's own byte order."""
    values = np.ascontiguousarray(rows[name])
    if name in _MOMENTS:
        return (values - run.info.begin) * _NS
    if name in _DURATIONS:
        return np.where(values == tables.NOT_READ, np.nan, values * _NS) if table == "boundaries" else values * _NS
    if name == "name":
        return _texts(values, run.names)
    if name == "site":
        return _texts(values, [str(site) for site in run.sites])
    if name == "stack":
        return _texts(values, [_stack(frames) for frames in run.stack_frames])
    if name == "kind":
        kinds = _KINDS[table]
        return _texts(values, [kind.name.lower() for kind in kinds])
    return values.astype(values.dtype.newbyteorder("="))


def _texts(numbers: Any, texts: Sequence[str]) -> Any:
    """The text of each number; None where there is none."""
    known = np.array([*texts, None], object)
    inside = (numbers >= 0) & (numbers < len(texts))
    return known[np.where(inside, numbers, len(texts))]


def _stack(frames: Sequence[Site]) -> str:
    return " > ".join(str(site) for site in frames)
