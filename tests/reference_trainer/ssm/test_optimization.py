"""The optimisation test of the case: its rows, its statistics, its file."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.ssm import optimization
from reference_trainer.ssm.optimization import measured, median_ratio, run, table
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.settings import Settings
from tests.reference_trainer.processes import raising

CURED = Plan(device_data=True, recurrence="scan", batched_draws=True, quiet=True, batched_seeds=True, flat=True)
SMALL = Settings(num_seeds=2, teacher_ranks=(1,), student_dims=(4, 8), sequence_length=8, epochs=5, max_guesses=20)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fewest rounds."""
    monkeypatch.setattr(optimization, "SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
def test_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    assert run(SMALL, CURED, device="cpu", result=path) == 0
    document = json.loads(path.read_text())
    rows = {row["name"]: row for row in document["rows"]}
    assert list(rows) == ["data generation", "forward", "training", "guess and check"]
    assert (document["dim"], document["rank"], document["seeds"]) == (8, 1, 2)
    for name in ("data generation", "forward", "training", "guess and check"):
        ratio = rows[name]["ratio"]
        assert ratio["low"] <= ratio["value"] <= ratio["high"]
        assert ratio["n"] == optimization.LEAST_ROUNDS
        assert rows[name]["as_found"] > 0
    assert document["plan"]["device_data"]
    assert document["results"]["jobs"] == document["results"]["same_epochs_and_guesses"] == 4
    printed = capsys.readouterr().out
    assert all(name in printed for name in rows)


@pytest.mark.usefixtures("quick")
def test_table_fits_a_terminal() -> None:
    """A terminal of 80 columns cuts nothing off."""
    from rich.console import Console

    rows = [
        optimization._row("data generation", [0.00767] * 9, [0.000349] * 9),
        optimization._row("training", [1.22] * 9, [0.0514] * 9),
        optimization._row("guess and check", [0.001] * 9, [0.336] * 9),
    ]
    document = {"seeds": 10, "rank": 1, "dim": 128, "device": "cpu", "rows": rows}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table(document))
    text = console.export_text()
    assert "…" not in text
    ratios = ("0.042 (0.042 to 0.042)", "336.000 (336.000 to 336.000)")
    assert all(part in text for part in (*ratios, "1,220.00 ms", "51.40 ms", "336.00 ms")), text


@pytest.mark.usefixtures("quick")
def test_what_is_left_out_has_no_row() -> None:
    document = measured(replace(SMALL, gnc=False), CURED, "cpu")
    assert [row["name"] for row in document["rows"]] == ["data generation", "forward", "training"]
    assert table(document).row_count == 3


def test_median_and_its_interval() -> None:
    """Against the table of Hollander, Wolfe and Chicken (2014) for the sign test: of 10, the second and the ninth."""
    ratio = median_ratio([7, 3, 1, 9, 5, 2, 8, 4, 10, 6])
    assert (ratio.value, ratio.low, ratio.high, ratio.n) == (5.5, 2, 9, 10)
    six = median_ratio([1, 2, 3, 4, 5, 6])
    assert (six.low, six.high) == (1, 6)
    assert median_ratio([2.0]).low == 2.0


@pytest.mark.usefixtures("quick")
def test_memory_that_runs_out_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization, "measured", raising(MemoryError()))
    with pytest.raises(TrainerError, match="out of memory: use smaller --student-dims"):
        run(SMALL, CURED, device="cpu")
