"""The counts of two programs in one table, in the terminal, in the page and as data."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from profiler.__main__ import main
from profiler.analyse.comparability import counted_mismatches
from profiler.analyse.model.device import RunCounts
from profiler.analyse.timing.counts import run_counts
from profiler.commands._comparing import _report_counts
from profiler.core.errors import ProfilerError
from profiler.report.counts import change_text, compared_counts
from profiler.report.render.console import print_report
from profiler.report.write import write_compared_counts
from profiler.run.tables import CallKind
from tests.recorded.builders import MS, RunBuilder


def side(label: str, copies: int) -> RunCounts:
    """Three steps, each with so many copies of 8 bytes for which the host waits, and 5 launches."""
    builder = RunBuilder(virtual_cuda=1)
    builder.steps(3, 10 * MS)
    for step in range(3):
        for number in range(copies):
            at = step * 10 * MS + number + 1
            builder.named_call(CallKind.D2H, "to pageable", at, at, site="train.py:7:main", bytes=8, blocked=1)
        for number in range(5):
            at = step * 10 * MS + MS + number
            builder.named_call(CallKind.LAUNCH, "add", at, at, site="train.py:9:main")
    run = builder.build()
    return run_counts(run, label)


SIDES = (side("as-found", 27), side("fixed", 1))


def test_each_kind_is_one_row() -> None:
    rows = {row.title: (row.text(0), row.text(1)) for row in compared_counts(SIDES)}
    assert rows == {
        "waits for the device": ("27", "1"),
        "copies to the host": ("27", "1"),
        "bytes of copies to the host": ("216 B", "8.00 B"),
        "launches": ("5", "5"),
    }
    assert (change_text(27, 1), change_text(1, 1.5), change_text(5, 5)) == (
        "27.0 times fewer", "1.50 times as many", "",
    )  # fmt: skip
    assert (change_text(0, 3), change_text(3, 0), change_text(0, 0)) == ("new", "gone", "")


def test_terminal_page_and_data_have_both_sides_and_no_time(tmp_path: Path) -> None:
    stream = io.StringIO()
    report = write_compared_counts(SIDES, tmp_path)
    print_report(report, console=Console(file=stream, width=80))
    page = (tmp_path / "compare.html").read_text()
    for text in (stream.getvalue(), page):
        for word in ("as-found", "fixed", "Waits for the device", "27.0 times fewer", "No times"):
            assert word in " ".join(text.split())
        assert "The sides differ" not in text
        assert "There is no GPU" not in text
    assert " ms" not in stream.getvalue()
    assert "as-found: 27 in a step" in page
    data = json.loads((tmp_path / "compare.json").read_text())
    assert [(each["label"], each["waits_per_step"]) for each in data["sides"]] == [("as-found", 27), ("fixed", 1)]
    assert data["comparable"]
    assert data["reasons"] == []


def test_sides_that_are_given_something_else_are_compared_with_a_warning(tmp_path: Path) -> None:
    before, after = SIDES
    facts = {**after.info.facts, "virtual_cuda": 2, "loaders": {"train": {"batch_size": 8}}}
    other = replace(after, info=replace(after.info, facts=facts))
    assert not counted_mismatches([before.info, after.info])
    stream = io.StringIO()
    report = write_compared_counts((before, other), tmp_path, counted_mismatches([before.info, other.info]))
    print_report(report, console=Console(file=stream, width=200))
    given = "virtual devices: 1 against 2", "batch size: not stated against 8"
    assert all(text in stream.getvalue() for text in ("The sides differ in what they are given", *given))
    data = json.loads((tmp_path / "compare.json").read_text())
    assert (data["comparable"], data["reasons"]) == (False, list(given))


@pytest.mark.parametrize(
    ("steps", "ranks", "taken"),
    [(0, 1, "took no step"), (1, 1, "took only one step:"), (1, 2, "took only one step in each rank")],
)
def test_less_than_two_steps_of_a_rank_are_refused(steps: int, ranks: int, taken: str, tmp_path: Path) -> None:
    builder = RunBuilder(virtual_cuda=1)
    for rank in range(ranks):
        builder.steps(steps, 10 * MS, pid=rank + 1)
    with pytest.raises(ProfilerError, match=taken):
        _report_counts([builder.build()] * 2, ["before", "after"], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--count"], "use --virtual-cuda to count the bundled trainers"),
        (["--virtual-cuda", "--ladder"], "leave --ladder out: --virtual-cuda starts each program once"),
        (["--count", "--pairs", "7", "--anyway"], "leave --pairs and --anyway out: --count starts each program once"),
        (["--count", "a", "b"], "leave --count out: counted runs are compared without it"),
        (["--virtual-cuda", "0", "--before", "a", "--after", "b"], "the number of devices must be 1 or more"),
        (["--virtual-cuda", "--seconds", "3"], "--seconds has no effect with --virtual-cuda"),
        (["--virtual-cuda", "--device", "cuda"], "--device has no effect with --virtual-cuda"),
        (["--virtual-cuda", "--trainer", "ssm"], "the sweep of teacher-student experiments cannot be counted"),
    ],
)
def test_options_that_would_have_no_effect(
    words: list[str], fault: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    assert fault in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
