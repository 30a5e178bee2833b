"""Data frames of a run: texts and seconds instead of numbers and nanoseconds; what is not known is missing."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import CallSite
from profiler.analyse.model.measures import Measure, Series
from profiler.core.errors import ProfilerError
from profiler.run.frames import frame, measures, rows, series, steps, thread_cpu
from profiler.run.model import Run, RunInfo, Site
from profiler.run.tables import NOT_READ, TABLES, ActivityKind, CallKind
from tests.fakes.sentences import note
from tests.recorded.builders import MS, RunBuilder, S, dtype_of


@pytest.fixture(scope="module")
def run() -> Run:
    """Begins at 2 s of its clock."""
    builder = RunBuilder()
    builder.step(2 * S, 2 * S + 10 * MS, tokens=100, process_cpu=12 * MS)
    builder.region("tokenize", 2 * S + MS, 2 * S + 3 * MS)
    builder.call(CallKind.SYNC, 2 * S + 4 * MS, 2 * S + 9 * MS, blocked=5 * MS, site="train.py:88:loop")
    builder.call(CallKind.LAUNCH, 2 * S + 3 * MS, 2 * S + 4 * MS)
    builder.activity(ActivityKind.D2H, 2 * S + 3 * MS, 2 * S + 8 * MS, name="loss", bytes=4)
    builder.counter("syncs", 1, step=0, time=2 * S + 10 * MS)
    builder.gauge("loss", 0.5, step=0, time=2 * S + 10 * MS)
    builder.sample("process.rss", 2 * S + 5 * MS, 1e6)
    builder.stack(["train.py:1:main", "train.py:88:loop"], 2 * S, 2 * S + MS)
    built = builder.build()
    return replace(built, info=replace(built.info, begin=2 * S))


def test_moments_count_from_the_begin_and_durations_are_seconds(run: Run) -> None:
    [step] = frame(run, "steps").to_dict("records")
    assert (step["begin"], step["end"]) == (0, pytest.approx(0.010))
    assert (step["tokens"], step["process_cpu"]) == (100, pytest.approx(0.012))
    [sample] = frame(run, "samples").to_dict("records")
    assert sample["time"] == pytest.approx(0.005)


def test_numbers_become_texts(run: Run) -> None:
    assert frame(run, "regions")["name"].tolist() == ["tokenize"]
    calls = frame(run, "calls")
    assert calls["kind"].tolist() == ["sync", "launch"]
    assert calls["site"][0] == "train.py:88 (loop)"
    assert calls["site"].isna().tolist() == [False, True]
    assert calls["blocked"].tolist() == pytest.approx([0.005, 0])
    assert frame(run, "activities")[["kind", "name", "bytes"]].values.tolist() == [["d2h", "loss", 4]]
    values = frame(run, "values")[["name", "kind", "value"]].values.tolist()
    assert values == [["syncs", "counter", 1.0], ["loss", "gauge", 0.5]]
    assert frame(run, "stacks")["stack"].tolist() == ["train.py:1 (main) > train.py:88 (loop)"]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_columns_even_when_empty(table: str) -> None:
    empty = frame(RunBuilder().build(), table)
    assert len(empty) == 0
    columns = [name for name, _ in TABLES[table] if name != "pad"]
    assert [*empty.columns][: len(columns)] == columns


def test_an_unknown_table_is_named(run: Run) -> None:
    with pytest.raises(ProfilerError, match="no table 'step': choose from steps, regions"):
        frame(run, "step")


# ---------------------------------------------------------------- steps with what was counted in them, threads


def test_steps_carry_their_counters_and_gauges() -> None:
    builder = RunBuilder()
    builder.steps(3, 10 * MS, tokens=4)
    builder.step(5 * MS, 9 * MS, index=0, pid=7)  # another process counts its steps from 0 too
    builder.counter("syncs", 2, step=0)
    builder.counter("syncs", 3, step=2)
    builder.counter("syncs", 50, step=0, pid=7)
    builder.counter("tokens", 9, step=1)
    builder.gauge("loss", 0.5, step=1)
    builder.gauge("loss", 0.25, step=1)
    builder.counter("syncs", 100, step=-1)  # outside of any step
    found = steps(builder.build())
    assert found["wall"].tolist() == pytest.approx([0.01, 0.01, 0.01, 0.004])
    assert found["syncs"].tolist() == [2, 0, 3, 50]
    assert found["tokens"].tolist() == [4, 4, 4, 0]
    assert found["tokens_value"].tolist() == [0, 9, 0, 0]
    assert found["loss"].isna().tolist() == [True, False, True, True]
    assert found["loss"][1] == 0.25, "the last one that was set"


def test_steps_of_a_run_without_values() -> None:
    builder = RunBuilder()
    builder.step(0, 10 * MS)
    assert steps(builder.build())["wall"].tolist() == [0.01]
    assert [*steps(RunBuilder().build())] == [*steps(builder.build())]


def test_cpu_of_threads_over_time() -> None:
    builder = RunBuilder()
    for moment, main, worker in ((1, 0.5, None), (2, 1.0, 0.25), (4, 2.0, 2.25)):
        builder.sample("thread.cpu_s", moment * S, main, pid=7, tid=7)
        if worker is not None:
            builder.sample("thread.cpu_s", moment * S, worker, pid=7, tid=8)
    builder.sample("thread.name:loader", 2 * S, 1, pid=7, tid=8)
    builder.sample("process.rss", 3 * S, 1e6, pid=7)  # another moment, of which no thread knows
    cores = thread_cpu(builder.build())
    assert cores.index.tolist() == [2, 4]
    assert cores["main 7"].tolist() == [0.5, 0.5]
    assert cores["loader 8"].isna().tolist() == [True, False]
    assert cores["loader 8"][4] == 1.0
    assert thread_cpu(RunBuilder().build()).empty


# ---------------------------------------------------------------- analysed values


def test_measures_side_by_side() -> None:
    before = {"sync": Measure("sync", 0.5, "s"), "log": Measure("log", None, "s", reason=note("level light"))}
    found = measures({"before": before, "after": {"sync": Measure("sync", 0.0, "s"), "copy": Measure("copy", 2, "s")}})
    assert found.index.tolist() == ["sync", "log", "copy"]
    assert found.loc["sync"].tolist() == [0.5, 0.0]
    assert found.isna().values.tolist() == [[False, False], [True, True], [True, False]]
    assert found.dtypes.tolist() == ["float64", "float64"]


def test_series_by_name() -> None:
    info = RunInfo(1, "r", "", ())
    analysis = Analysis(info, {}, {}, {}, series=(Series("host_cpu", "cores", (0.5, 1.5), (1.0, 0.25)),))
    found = series(analysis, "host_cpu")
    assert (found.index.tolist(), found.tolist(), found.name) == ([0.5, 1.5], [1.0, 0.25], "host_cpu")
    with pytest.raises(ProfilerError, match="no series 'loss'; it has host_cpu"):
        series(analysis, "loss")
    with pytest.raises(ProfilerError, match="it has none at all"):
        series(replace(analysis, series=()), "loss")


def test_rows_of_values() -> None:
    loop, start = Site("train.py", 88, "loop"), Site("a.py", 1, "")
    hot = (CallSite(loop, "sync", 2, 0.5, 0.25, 0), CallSite(start, "h2d", 1, 1, 0, 4))
    found = rows(hot)
    assert found["site"].tolist() == ["train.py:88 (loop)", "a.py:1"]
    assert found["seconds_per_step"].tolist() == [0.5, 1]
    assert [*found][:5] == ["site", "kind", "calls_per_step", "seconds_per_step", "blocked_per_step"]
    assert [*found][5:] == ["bytes_per_step", "operation", "library"]
    assert rows(()).empty


def test_cpu_times_that_were_not_read_are_missing(run: Run) -> None:
    rows = np.zeros(2, dtype_of("boundaries"))
    rows["time"], rows["thread_cpu"] = [2 * S, 2 * S + MS], [MS, NOT_READ]
    boundaries = frame(replace(run, boundaries=rows, names=(*run.names, "SGD")), "boundaries")
    assert boundaries["thread_cpu"].isna().tolist() == [False, True]
    assert boundaries["thread_cpu"][0] == pytest.approx(1e-3)


def test_without_pandas_the_error_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ProfilerError, match=r"training-profiler\[frames\]"):
        frame(run, "steps")
