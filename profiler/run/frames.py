"""Runs and analysis results as pandas data frames, with texts instead of numbers that point to them, in SI units.

`frame` (any table), `steps` and `thread_cpu` convert a run; `measures`, `series` and `rows` convert analysis results.
These functions need pandas, the extra `frames`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.measures import Measure
from profiler.core.errors import ProfilerError
from profiler.core.metrics import THREAD_NAME
from profiler.run import tables
from profiler.run.model import Run, Site, Table

if TYPE_CHECKING:
    import pandas as pd

    DataFrame = pd.DataFrame

_TIMES: Final = ("begin", "end", "time")
_DURATIONS: Final = ("blocked", "thread_cpu", "process_cpu", "device_cpu")
_NS: Final = 1e-9
_UNUSED: Final = ("pad",)


def _import_pandas() -> Any:
    """:raises ProfilerError: pandas is not installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ProfilerError("data frames need pandas: pip install 'training-profiler[frames]'") from error
    return pd


def frame(run: Run, table: str) -> pd.DataFrame:
    """Return one table of `run`, a row a record.

    Times are seconds since the run's begin, durations seconds (float64). `name`, `site` and `kind` are texts; a `stack`
    is one text too, its frames outermost first, separated by ` > `. Unknown values are missing (`isna`).

    :param table: one of `profiler.run.tables.TABLES`: steps, regions, calls, ...
    :raises ProfilerError: no such table.
    """
    pd = _import_pandas()
    if table not in tables.TABLES:
        raise ProfilerError(f"a run has no table {table!r}: choose from {', '.join(tables.TABLES)}")
    rows: Table = getattr(run, table)
    names = [name for name in rows.dtype.names or () if name not in _UNUSED]
    return pd.DataFrame({name: _column(run, table, name, rows) for name in names})


def steps(run: Run) -> pd.DataFrame:
    """Return the table `steps` with columns for the wall time (s) and for each counter and gauge.

    A counter that a step does not mention is 0, a gauge that it did not set is missing. A counter or gauge with the
    name of another column gets the suffix `_value`.
    """
    pd = _import_pandas()
    result, values = frame(run, "steps"), frame(run, "values")
    result["wall"] = result["end"] - result["begin"]
    index = pd.MultiIndex.from_frame(result[["pid", "index"]])
    renamed = {name: f"{name}_value" for name in result}
    for kind, how, absent in (("counter", "sum", 0.0), ("gauge", "last", np.nan)):
        rows = values[values["kind"] == kind]
        wide = rows.pivot_table(index=["pid", "step"], columns="name", values="value", aggfunc=how, fill_value=absent)
        wide = wide.reindex(index, fill_value=absent).rename(columns=renamed)
        result = pd.concat([result, wide.set_axis(result.index)], axis="columns")
    return result


def thread_cpu(run: Run) -> pd.DataFrame:
    """CPU use of the program's threads over time, in cores: a row a sample, a column a thread (`name tid`).

    Each value is the mean since the previous sample; the index is seconds since the run's begin. The main thread of a
    process is called `main`. Values are missing while a thread did not exist.
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
    """Return measures side by side, a row a measure and a column a side, in their units; missing where not measured.

    :param sides: label -> `Analysis.measures`, `.breakdown`, `.device_breakdown` or `Side.measures`.
    """
    pd = _import_pandas()
    names = dict.fromkeys(name for side in sides.values() for name in side)
    columns = {label: [side[name].value if name in side else None for name in names] for label, side in sides.items()}
    return pd.DataFrame(columns, index=list(names), dtype="float64")


def series(analysis: Analysis, name: str) -> pd.Series:
    """Return one of `Analysis.series` over the seconds since the measured window began.

    :param name: device_utilization (0..1), host_cpu (cores), tokens_per_s, ...
    :raises ProfilerError: this run has no such series.
    """
    pd = _import_pandas()
    for candidate in analysis.series:
        if candidate.name == name:
            index = pd.Index(candidate.times, name="s")
            return pd.Series(candidate.values, index=index, name=name, dtype="float64")
    available = ", ".join(candidate.name for candidate in analysis.series) or "none at all"
    raise ProfilerError(f"this run has no series {name!r}; it has {available}")


def rows(values: Iterable[Any], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a row for each of `values`, which are of one frozen type, as `Analysis.idle` and ratios, or mappings with
    the same keys; a site is one text.

    :param columns: of the table, also where there is no row.
    """
    pd = _import_pandas()
    records = [
        value if isinstance(value, Mapping) else {field.name: getattr(value, field.name) for field in fields(value)}
        for value in values
    ]
    return pd.DataFrame(
        [{name: str(cell) if isinstance(cell, Site) else cell for name, cell in row.items()} for row in records],
        columns=columns,
    )


def _column(run: Run, table: str, name: str, rows: Table) -> Any:
    """Return the values of one column; pandas wants them contiguous and in the machine's own byte order."""
    values = np.ascontiguousarray(rows[name])
    if name in _TIMES:
        return (values - run.info.begin) * _NS
    if name in _DURATIONS:
        return np.where(values == tables.NOT_READ, np.nan, values * _NS) if table == "boundaries" else values * _NS
    if name == "name":
        return _texts(values, run.names)
    if name == "site":
        return _texts(values, [str(site) for site in run.sites])
    if name == "stack":
        return _texts(values, [" > ".join(map(str, frames)) for frames in run.stack_frames])
    if name == "kind":
        kinds = tables.KINDS[table]
        return _texts(values, [kind.name.lower() for kind in kinds])
    return values.astype(values.dtype.newbyteorder("="))


def _texts(numbers: Any, texts: Sequence[str]) -> Any:
    """Return the text of each number; None for numbers without a text."""
    table = np.array([*texts, None], object)
    valid = (numbers >= 0) & (numbers < len(texts))
    return table[np.where(valid, numbers, len(texts))]
