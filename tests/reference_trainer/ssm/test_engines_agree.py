"""The real jobs: as found, with each cure alone, with all of them, in every engine, the outcomes are the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

from reference_trainer.ssm.plan import fixes
from reference_trainer.ssm.problem import Job, Outcome
from reference_trainer.ssm.result_file import ResultFile
from reference_trainer.ssm.settings import Settings
from reference_trainer.ssm.sweep import sweep

SMALL: dict[str, Any] = {
    "num_seeds": 3,
    "teacher_ranks": (1, 2),
    "student_dims": (4, 8),
    "sequence_length": 8,
    "measurements": 2,
    "epochs": 40,
    "lr": 0.1,
    "gd_loss": 0.2,
    "max_guesses": 400,
    "device": "cpu",
}
RELATIVE, ABSOLUTE = 2e-3, 2e-5
"""Tolerances of losses after up to 40 updates in fp32 from initial values that agree to the rounding of fp32."""
WAYS: dict[str, dict[str, Any]] = {
    **{name: {"fixes": (name,), "engine": "inline"} for name in fixes()},
    "fixed, inline": {"variant": "fixed", "engine": "inline"},
    "fixed, pool": {"variant": "fixed", "engine": "pool", "workers": 2},
    "flat alone, pool": {"fixes": ("flat-sweep",), "engine": "pool", "workers": 2},
}
SLOW = ("fused-recurrence", "flat alone, pool")
"""Quick tests cover these within `fixed`."""


def done(tmp: pytest.TempPathFactory, **way: Any) -> dict[Job, Outcome]:
    settings = Settings(results=tmp.mktemp("sweep") / "results", **SMALL, **way)
    found = sweep(settings)
    assert (found.failures, found.success_rate) == ({}, 1.0)
    file = ResultFile(settings.results, settings)
    file.close()
    return file.done


@pytest.fixture(scope="module")
def as_found(tmp_path_factory: pytest.TempPathFactory) -> dict[Job, Outcome]:
    return done(tmp_path_factory)


def same(way: dict[Job, Outcome], found: dict[Job, Outcome]) -> None:
    assert way.keys() == found.keys()
    for job, outcome in found.items():
        ours, theirs = way[job].fit, outcome.fit
        assert (ours.fitted, ours.epochs, ours.guesses) == (theirs.fitted, theirs.epochs, theirs.guesses), job.name
        for name in ("train_loss", "generalization_loss"):
            item, another = getattr(ours, name), getattr(theirs, name)
            assert math.isclose(item, another, rel_tol=RELATIVE, abs_tol=ABSOLUTE), (job.name, name, item, another)
        assert way[job].points == outcome.points


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way in SLOW)) for way in WAYS])
def test_outcomes_are_those_of_as_found(
    way: str, as_found: dict[Job, Outcome], tmp_path_factory: pytest.TempPathFactory
) -> None:
    same(done(tmp_path_factory, **WAYS[way]), as_found)


def test_the_cases_are_not_trivial(as_found: dict[Job, Outcome]) -> None:
    """Both methods take various numbers of epochs and guesses."""
    fits = [outcome.fit for outcome in as_found.values()]
    for count in ("epochs", "guesses"):
        numbers = [getattr(fit, count) for fit in fits if getattr(fit, count)]
        assert len(set(numbers)) > 3, numbers
    assert 0 < sum(fit.fitted for fit in fits) <= len(fits)
