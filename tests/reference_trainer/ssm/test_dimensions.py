"""The report of both methods' losses against the dimension, from made-up outcomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference_trainer.ssm.problem import GD, GNC
from tests.benchmarks.ssm_dimensions import cells, document, draw, growth, markdown

DIMS = (4, 16, 64)
SEEDS = range(9)


def rows(ranks: tuple[int, ...] = (1, 2)) -> list[dict]:
    """Guesses generalise ever worse, by a factor of 2 a dimension; gradient descent does not change."""
    return [
        {
            "method": method,
            "rank": rank,
            "dim": dim,
            "seed": seed,
            "train_loss": 0.01,
            "generalization_loss": (0.1 + 0.01 * seed) * (2.0**slot if method == GNC else 1.0),
            "fitted": seed > 0,
            "epochs": 40 if method == GD else 0,
            "guesses": 0 if method == GD else 100,
        }
        for method in (GD, GNC)
        for rank in ranks
        for slot, dim in enumerate(DIMS)
        for seed in SEEDS
    ]


@pytest.fixture
def outcomes(tmp_path: Path) -> Path:
    path = tmp_path / "outcomes.jsonl"
    ends = {"statistics": {"jobs": 1}}
    lost = {**rows()[0], "failure": "no luck"}
    del lost["train_loss"]
    path.write_text("".join(json.dumps(row) + "\n" for row in ({"format": "x"}, *rows(), lost, ends)))
    return path


def test_quartiles_over_seeds() -> None:
    result = cells(rows())
    assert len(result) == 2 * 2 * len(DIMS)
    first, last = result[0], result[-1]
    assert (first["method"], first["rank"], first["dim"]) == (GD, 1, 4)
    assert (first["seeds"], first["fitted"], first["passes"][1]) == (9, 8, 40)
    assert first["generalization_loss"] == pytest.approx([0.12, 0.14, 0.16])
    assert last["generalization_loss"] == pytest.approx([0.48, 0.56, 0.64])


def test_growth_is_of_the_same_teacher() -> None:
    grown, level = growth(rows(), GNC, 1), growth(rows(), GD, 2)
    assert grown is not None
    assert level is not None
    assert (grown.ratio.value, grown.ratio.low, grown.ratio.high) == pytest.approx((4, 4, 4))
    assert level.ratio.value == pytest.approx(1)
    assert growth(rows((1,)), GNC, 2) is None


def test_growth_is_of_students_that_fitted_at_both_ends() -> None:
    """Seed 0 of nine fits nowhere and seed 1 not at the largest dimension, where both generalise badly."""
    created = rows()
    for row in created:
        if row["seed"] < 2 and row["dim"] == DIMS[-1]:
            row |= {"fitted": False, "generalization_loss": "nan" if row["seed"] else 1e9}
    grown = growth(created, GNC, 1)
    assert grown is not None
    assert (grown.ratio.n, grown.teachers) == (7, 9)
    assert grown.ratio.high == pytest.approx(4)
    assert growth([{**row, "fitted": False} for row in created], GNC, 1) is None


def test_report(outcomes: Path) -> None:
    result = json.loads(json.dumps(document(outcomes, "the command")))
    text = "\n".join(markdown(result, "figure.svg"))
    assert "| guess and check | 2 | 64 | 9 | 8 | 0.01 (0.01 to 0.01) | 0.56 (0.48 to 0.64) | 100 (100 to 100) |" in text
    assert "- guess and check, rank 1: 4.00 (4.00 to 4.00), 8 of 9 teachers" in text


@pytest.mark.slow
def test_figure(outcomes: Path, tmp_path: Path) -> None:
    result = document(outcomes, "the command")
    drawn = [tmp_path / f"{name}.svg" for name in ("one", "two")]
    for path in drawn:
        draw(result, path)
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
    assert "teacher of rank 2" in drawn[0].read_text()
