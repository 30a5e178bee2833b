"""Both methods against the fp64 reference; together as alone; every plan the same; what fails and what is capped.

Tolerances. Host draws are fp64 and device draws fp32 of the same numbers, and sums are in other orders: losses agree to
`CLOSE`, relative, but for what is lost where a loss is a small difference (`LOST`). Where a loss is nearer to the
threshold than that, the epoch or the guess may be another: in no case here it is.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer.errors import TrainerError
from reference_trainer.performance.memory import Peak
from reference_trainer.ssm import draws, guess_and_check
from reference_trainer.ssm.group_work import do_jobs, points
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, GNC, Fit, Job
from reference_trainer.ssm.report_log import ReportLog
from reference_trainer.ssm.settings import Settings
from tests.reference_trainer.ssm.method_reference import reference

CLOSE = 2e-3
LOST = 1e-5
CURES = {
    "device_data": True,
    "recurrence": "scan",
    "batched_draws": True,
    "quiet": True,
    "batched_seeds": True,
}
"""Fields of a plan and their values in the fixed variant."""
SMALL = Settings(
    num_seeds=6,
    teacher_ranks=(2,),
    student_dims=(12,),
    sequence_length=16,
    measurements=3,
    epochs=60,
    gd_loss=0.01,
    gnc_loss=0.02,
    max_guesses=400,
)


def plans() -> list[Any]:
    """The plans with no fix, one, two and all fixes; pairs are slow tests."""
    chosen = ((), *combinations(CURES, 1), *combinations(CURES, 2), tuple(CURES))
    return [
        pytest.param(
            replace(Plan(), **{name: CURES[name] for name in names}),
            id="-".join(names),
            marks=pytest.mark.slow if len(names) == 2 else (),
        )
        for names in chosen
    ]


ALL = replace(Plan(), **CURES)


def recorded_batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A list that gets (jobs, guesses of each) of every batch of guesses that is drawn."""
    batches: list[tuple[int, int]] = []
    usual = draws.guesses

    def drawn(jobs: Sequence[Job], first: Sequence[int] | int, count: int, **where: Any) -> Any:
        batches.append((len(jobs), count))
        return usual(jobs, first, count, **where)

    monkeypatch.setattr(draws, "guesses", drawn)
    return batches


@pytest.mark.parametrize("seeds_together", [True, False])
def test_a_given_batch_size_is_of_all_jobs_together_and_changes_no_outcome(
    monkeypatch: pytest.MonkeyPatch, seeds_together: bool
) -> None:
    plan = replace(ALL, batched_seeds=seeds_together)
    expected = fits(GNC, plan)
    batches = recorded_batches(monkeypatch)
    same(fits(GNC, plan, replace(SMALL, batch_size=50)), expected)
    assert batches[0] == ((6, 8) if seeds_together else (1, 50))
    assert max(count * size for count, size in batches) <= 50
    batches.clear()
    same(fits(GNC, plan, replace(SMALL, batch_size=1)), expected)
    assert {size for _, size in batches} == {1}


def jobs(method: str, settings: Settings = SMALL) -> tuple[Job, ...]:
    return tuple(job for job in settings.jobs() if job.method == method)


def fits(method: str, plan: Plan, settings: Settings = SMALL, device: str = "cpu") -> list[Fit]:
    """Fit all seeds of a combination, in groups as the sweep makes them."""
    requested = jobs(method, settings)
    groups = [requested] if plan.batched_seeds else [(job,) for job in requested]
    return [outcome.fit for group in groups for outcome in do_jobs(group, settings, plan, device)]


def same(found: list[Fit], expected: list[Fit]) -> None:
    for item, another in zip(found, expected, strict=True):
        assert (item.fitted, item.epochs, item.guesses) == (another.fitted, another.epochs, another.guesses)
        assert item.train_loss == pytest.approx(another.train_loss, rel=CLOSE, abs=LOST)
        assert item.generalization_loss == pytest.approx(another.generalization_loss, rel=CLOSE, abs=LOST)


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Fit]]:
    return {method: [reference(job, SMALL) for job in jobs(method)] for method in (GD, GNC)}


def test_the_cases_are_worth_testing(expected: dict[str, list[Fit]]) -> None:
    """Students that stop at several epochs, one that never does, and guesses from one to hundreds."""
    assert len({fit.epochs for fit in expected[GD]}) > 2
    assert {fit.fitted for fit in expected[GD]} == {True, False}
    assert max(fit.guesses for fit in expected[GNC]) > guess_and_check.FIRST_BATCH
    assert any(fit.fitted and fit.guesses < guess_and_check.FIRST_BATCH for fit in expected[GNC])


@pytest.mark.parametrize("method", [GD, GNC])
@pytest.mark.parametrize("plan", plans())
def test_every_plan_gives_what_the_reference_gives(plan: Plan, method: str, expected: dict[str, list[Fit]]) -> None:
    same(fits(method, plan), expected[method])


@pytest.mark.parametrize("plan", [Plan(), ALL], ids=["as-found", "fixed"])
def test_plain_gradient_descent(plan: Plan) -> None:
    settings = replace(SMALL, optimizer="sgd", lr=0.05)
    same(fits(GD, plan, settings), [reference(job, settings) for job in jobs(GD, settings)])


@pytest.mark.parametrize("plan", [Plan(batched_seeds=True), ALL], ids=["seeds", "all"])
@pytest.mark.parametrize("method", [GD, GNC])
def test_together_as_alone(plan: Plan, method: str) -> None:
    """The same plan with one seed a group: what others of a batch do changes nothing."""
    requested = jobs(method)
    alone = [do_jobs((job,), SMALL, plan, "cpu")[0].fit for job in requested]
    same(fits(method, plan), alone)
    same([outcome.fit for outcome in do_jobs(requested[::-1], SMALL, plan, "cpu")][::-1], alone)


@pytest.mark.parametrize("plan", [Plan(), ALL], ids=["as-found", "fixed"])
def test_what_diverges_stops_by_itself(plan: Plan) -> None:
    """A loss that is no number any more ends the job, and not those beside it."""
    settings = replace(SMALL, optimizer="sgd", lr=30.0, epochs=400)
    found = fits(GD, plan, settings)
    lost = [fit for fit in found if isnan(fit.train_loss)]
    assert lost
    assert not any(fit.fitted for fit in lost)
    assert all(fit.epochs < settings.epochs for fit in lost)


@pytest.mark.parametrize("plan", [Plan(), ALL], ids=["as-found", "fixed"])
def test_at_the_caps(plan: Plan) -> None:
    """Neither is fitted; guess and check keeps the best of what it saw."""
    settings = replace(SMALL, epochs=3, max_guesses=70, gd_loss=1e-12, gnc_loss=1e-12)
    descended, checked = fits(GD, plan, settings), fits(GNC, plan, settings)
    assert [(fit.fitted, fit.epochs, fit.guesses) for fit in descended] == [(False, 3, 0)] * 6
    assert [(fit.fitted, fit.epochs, fit.guesses) for fit in checked] == [(False, 0, 70)] * 6
    same(checked, [reference(job, settings) for job in jobs(GNC, settings)])


@pytest.mark.parametrize("plan", [Plan(), ALL], ids=["as-found", "fixed"])
def test_what_fits_at_once(plan: Plan) -> None:
    settings = replace(SMALL, gd_loss=1e6, gnc_loss=1e6)
    assert [(fit.fitted, fit.epochs) for fit in fits(GD, plan, settings)] == [(True, 0)] * 6
    assert [(fit.fitted, fit.guesses) for fit in fits(GNC, plan, settings)] == [(True, 1)] * 6


@pytest.mark.parametrize("method", [GD, GNC])
@pytest.mark.parametrize("quiet", [False, True])
def test_reports_are_the_same_in_every_way(method: str, quiet: bool, tmp_path: Path) -> None:
    """The same jobs report at the same updates or guesses, the same values but for rounding."""
    observed = []
    for name, plan in (("found", Plan(quiet=quiet)), ("fixed", replace(ALL, quiet=quiet))):
        settings = replace(SMALL, log=tmp_path / name)
        fits(method, plan, settings)
        observed.append(sorted(_reports(tmp_path / name)))
    found, fixed = observed
    assert len(found) > 5
    assert [line[:2] for line in found] == [line[:2] for line in fixed]
    for (*_, item), (*_, another) in zip(found, fixed, strict=True):
        assert item == pytest.approx(another, rel=10 * CLOSE, abs=1e-3)


def _reports(path: Path) -> Iterable[tuple[str, int, list[float]]]:
    """(job, number, all values) of each line."""
    for line in path.read_text().splitlines():
        head, _, values = line.partition(":")
        name, number = head.split()
        arguments = values.replace("[", " ").replace("]", " ").replace(",", " ").split()
        yield name, int(number), [float(word) for word in arguments if word[0] in "-0123456789"]


def test_quiet_reports_are_short_and_rare(tmp_path: Path) -> None:
    lines = {}
    for quiet in (False, True):
        settings = replace(SMALL, log=tmp_path / f"{quiet}", report_every=5, num_seeds=1, epochs=41, gd_loss=1e-12)
        fits(GD, Plan(quiet=quiet), settings)
        lines[quiet] = list(_reports(tmp_path / f"{quiet}"))
    assert [number for _, number, _ in lines[False]] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert [number for _, number, _ in lines[True]] == [5, 10, 20, 40]
    assert {len(values) for *_, values in lines[False]} == {1 + 3 + 3 * 12}
    assert {len(values) for *_, values in lines[True]} == {1 + 3 + 3 * 5}


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch, expected: dict[str, list[Fit]]) -> None:
    """Out of memory costs time and changes no result."""
    usual, refused = draws.guesses, []

    def guesses(jobs, first, count, **options):
        if len(jobs) * count > 100:
            refused.append(count)
            raise MemoryError
        return usual(jobs, first, count, **options)

    monkeypatch.setattr(draws, "guesses", guesses)
    same(fits(GNC, ALL), expected[GNC])
    assert refused


def test_outcomes() -> None:
    requested = jobs(GNC)
    found = do_jobs(requested, SMALL, ALL, "cpu")
    assert [outcome.job for outcome in found] == list(requested)
    assert {outcome.device for outcome in found} == {"cpu"}
    assert all(outcome.seconds > 0 and outcome.memory_bytes >= 0 for outcome in found)
    for outcome in found:
        assert outcome.points == outcome.fit.guesses * 3 * 16 == points(outcome.fit, SMALL)
    assert points(Fit(0, 0, fitted=True, epochs=4), SMALL) == 5 * 3 * 16


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"--log .*No such file"):
        do_jobs(jobs(GD), replace(SMALL, log=tmp_path / "missing" / "log"), ALL, "cpu")


def test_a_full_disk_is_one_line() -> None:
    with (
        ReportLog(Path("/dev/full"), every=1, quiet=False) as log,
        pytest.raises(TrainerError, match=r"^--log /dev/full: No space left on device$"),
    ):
        log.report([jobs(GD)[0]], [1], {"loss": torch.ones(1)})


def test_a_line_that_is_written_in_part_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearly full disk writes a part of a line."""
    write = os.write
    path = tmp_path / "log"
    with ReportLog(path, every=1, quiet=False) as log, monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: write(file, data[:5]))
        with pytest.raises(TrainerError, match=rf"^--log {path}: No space left on device, its last line is cut off$"):
            log.report([jobs(GD)[0]], [1], {"loss": torch.ones(1)})
    assert path.read_bytes() == b"gd-r2"


def test_outcomes_travel_between_processes() -> None:
    found = do_jobs(jobs(GD)[:1], SMALL, Plan(), "cpu")
    assert pickle.loads(pickle.dumps(found)) == found
    assert asdict(found[0])["fit"]["epochs"] == found[0].fit.epochs


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="its largest size is not forgotten")
def test_the_peak_of_a_group_begins_anew() -> None:
    with Peak(torch.device("cpu")) as peak:
        blocked = torch.ones(32 << 20)
    assert peak.bytes > 100 << 20
    assert len(blocked)
    with Peak(torch.device("cpu")) as second:
        pass
    assert second.bytes < 32 << 20
