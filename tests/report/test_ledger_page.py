"""`diagnose --ledger`: all time of a run, and why a line is blamed or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from profiler import analyse_run, load
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.ledger import Ledger, Period
from profiler.core.errors import ProfilerError
from profiler.diagnose.findings import find
from profiler.diagnose.rule import Claim, Rule, exactly
from profiler.report.blocks import Table, Text
from profiler.report.ledger_page import ledger_report
from tests.fakes.programs import ROOT

RUNS = ROOT / "tests" / "approval" / "runs"


@pytest.fixture(scope="module")
def plain() -> Analysis:
    return analyse_run(load(RUNS / "plain-standard.zip"))


def tables(analysis: Analysis, line: str = "") -> list[Table]:
    return [block for block in ledger_report(analysis, line).sections[0].blocks if isinstance(block, Table)]


def why(analysis: Analysis, line: str) -> str:
    return next(block.text for block in ledger_report(analysis, line).sections[0].blocks if isinstance(block, Text))


def test_each_period_has_a_table_and_the_steps_come_first(plain: Analysis) -> None:
    captions = [table.caption for table in tables(plain)]
    assert [caption.partition(":")[2].partition(",")[0].strip() for caption in captions] == [
        "steps", "before the steps", "after the steps",
    ]  # fmt: skip
    assert all(table.rows for table in tables(plain))


def test_a_line_that_a_finding_names(plain: Analysis) -> None:
    assert plain.findings[0].sites[0].line == 17
    text = why(plain, "plain.py:17")
    assert text.startswith("58% of it belongs to slow-dataset-item: The dataset takes long for each item")
    assert "No rule claims the other 42%. Most of it is data loading in torch.utils.data." in text


def test_a_line_that_no_finding_names(plain: Analysis) -> None:
    assert why(plain, "plain.py:20") == (
        "No rule claims it. Most of it is compute in torch.autograd.graph._engine_run_backward, each step. "
        "No rule recognizes a cause in it."
    )


def test_a_line_that_takes_too_little(plain: Analysis) -> None:
    ledger = plain.ledger
    cells = [
        replace(cell, seconds=0.02) if cell.period is Period.STEPS and cell.place and cell.place.line == 20 else cell
        for cell in ledger.cells
    ]
    small = replace(plain, ledger=replace(ledger, cells=tuple(cells)))
    text = "No rule claims it. It takes 3.1% of the program's own time; a cause must take 5.0%."
    assert why(small, "plain.py:20") == text


def test_a_line_before_the_steps(plain: Analysis) -> None:
    assert why(plain, "plain.py:5") == (
        "No rule claims it. Time before the measured steps does not recur, so no gain is predicted."
    )


def test_a_line_without_time(plain: Analysis) -> None:
    text = why(plain, "plain.py:999")
    assert text.startswith("No time is known of plain.py:999 itself")
    named = replace(plain.findings[0], sites=(replace(plain.findings[0].sites[0], line=999),))
    text = why(replace(plain, findings=(named,)), "plain.py:999")
    assert "slow-dataset-item is about this line: The dataset takes long for each item." in text


@pytest.mark.parametrize("line", ["17", "plain.py", "plain.py:", ":17", "plain.py:x"])
def test_what_is_no_line_is_refused(plain: Analysis, line: str) -> None:
    with pytest.raises(ProfilerError, match="is no line: write FILE:LINE"):
        ledger_report(plain, line)


def claiming(plain: Analysis, costs: Mapping[str, float], line: int) -> Rule:
    """A rule that claims these seconds per step at a line of plain.py."""
    site = replace(plain.findings[0].sites[0], line=line)
    claim = Claim({name: exactly(seconds) for name, seconds in costs.items()}, (site,))
    return Rule("made-up", "It is made up", (), "Mend it.", lambda _: claim, threshold=0.0)


def claimed(plain: Analysis, costs: Mapping[str, float], line: int) -> tuple[Ledger, float]:
    """The ledger with the cells of such a claim, and the seconds of these."""
    ledger = find(plain, [claiming(plain, costs, line)]).ledger
    assert ledger is not None
    return ledger, sum(sum(cell.findings.values()) for cell in ledger.cells)


def test_claims_take_the_cells_at_their_lines_first(plain: Analysis) -> None:
    finding, steps = plain.findings[0], plain.value("steps")
    ledger, seconds = claimed(plain, finding.costs, finding.sites[0].line)
    assert {cell.place.line for cell in ledger.cells if cell.findings} == {finding.sites[0].line}
    assert seconds == pytest.approx(finding.seconds * steps, rel=0.01)
    assert all(cell.left >= 0 for cell in ledger.cells)


def test_a_run_without_a_step_has_no_claims() -> None:
    analysis = analyse_run(load(RUNS / "crashed-at-start.zip"))
    assert {cell.period for cell in analysis.ledger.cells} == {Period.UNSEEN, Period.BEFORE, Period.AFTER}
    assert not any(cell.findings for cell in analysis.ledger.cells)
    assert tables(analysis)[0].caption.startswith("Rank 0, main thread: no step seen")


def test_what_a_claim_costs_beyond_its_lines_is_not_placed(plain: Analysis) -> None:
    steps = plain.value("steps")
    computing = sum(cell.seconds for cell in plain.ledger.of(Period.STEPS) if cell.kind == "compute") / steps
    ledger, seconds = claimed(plain, {"compute": computing}, 20)
    assert seconds + ledger.unplaced["compute"]["made-up"] == pytest.approx(computing * steps, rel=0.01)
    finding = find(plain, [claiming(plain, {"compute": computing}, 20)]).findings[0]
    text = why(replace(plain, ledger=ledger, findings=(finding,)), "plain.py:21")
    assert "Part of it may belong to made-up. The lines of these findings are not known." in text


def test_a_claim_without_a_cell_at_its_lines_has_its_kind_of_time(plain: Analysis) -> None:
    """A dataset in workers: the training thread waits at another line."""
    ledger, _ = claimed(plain, plain.findings[0].costs, 999)
    assert [cell.place.line for cell in ledger.cells if cell.findings] == [17]
    assert not ledger.unplaced


def test_a_line_of_a_device_and_of_the_host() -> None:
    analysis = analyse_run(load(ROOT / "notebooks" / "runs" / "detail-as-found.zip"))
    captions = [table.caption for table in tables(analysis, "as_found.py:55")]
    assert [caption.partition(" ")[2] for caption in captions[:2]] == [
        "in the measured steps of the device", "in the measured steps",
    ]  # fmt: skip
    assert all(row for table in tables(analysis, "as_found.py:55") for row in table.rows)
