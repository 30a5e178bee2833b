"""The sweep with fake jobs: groups, retries, resumption, statistics, steps; and what ends it from outside."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm import group_work, result_file
from reference_trainer.ssm.group_work import SweepContext, first_work, groups
from reference_trainer.ssm.placement import WorkerSlot
from reference_trainer.ssm.plan import Plan, plan
from reference_trainer.ssm.problem import GD, GNC, Job
from reference_trainer.ssm.result_file import ResultFile
from reference_trainer.ssm.settings import Settings
from reference_trainer.ssm.sweep import sweep
from tests.fakes.programs import ROOT
from tests.reference_trainer.processes import raising, started
from tests.reference_trainer.ssm import fake_jobs
from tests.reference_trainer.ssm.fake_jobs import BAD_RANK, gone

POOL = {"fixes": ("flat-sweep",), "engine": "pool", "workers": 2}
WAYS: dict[str, dict[str, Any]] = {
    "as found": {},
    "batched seeds": {"fixes": ("batched-seeds",)},
    "flat": POOL,
    "flat and batched": {**POOL, "fixes": ("flat-sweep", "batched-seeds")},
    "flat in one process": {"fixes": ("flat-sweep",), "engine": "inline"},
}


def small(**changed: Any) -> Settings:
    usual = {"num_seeds": 3, "teacher_ranks": (1, BAD_RANK), "student_dims": (8, 32), "device": "cpu"}
    return Settings(**{**usual, **changed})


def outcomes(settings: Settings) -> dict[Job, Any]:
    """The outcomes in the results file."""
    file = ResultFile(settings.results, settings)
    file.close()
    return file.done


def expected(settings: Settings) -> dict[Job, Any]:
    return {job: fake_jobs.outcome(job) for job in settings.jobs()}


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split() if (folder / "calls").exists() else []


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_give_the_same_outcomes(way: str, tmp_path: Path) -> None:
    settings = small(results=tmp_path / "results", **WAYS[way])
    result = sweep(settings, work=partial(fake_jobs.counted, tmp_path))
    assert outcomes(settings) == expected(settings)
    assert sorted(calls(tmp_path)) == sorted(job.name for job in settings.jobs())
    assert (result.jobs, result.done, result.kept, result.failures, result.success_rate) == (24, 24, 0, {}, 1.0)
    assert result.memory_per_job == 20_000
    assert result.points == 24 * 20
    assert result.devices["cpu"].jobs == 24
    assert result.workers == (2 if "pool" in WAYS[way].values() else 1)
    assert 0 <= result.devices["cpu"].busy <= 1
    assert result.total_s == result.start_s + result.wall_s > 0
    assert result.total_jobs_per_s == pytest.approx(24 / result.total_s)
    assert [cell.jobs for cell in result.cells] == [3] * 8
    last = json.loads((tmp_path / "results").read_text().splitlines()[-1])
    assert last["statistics"] == json.loads(json.dumps(result.as_json()))


def test_groups_and_their_order() -> None:
    settings = small(epochs=100, max_guesses=600)
    jobs = settings.jobs()
    assert groups(jobs, settings, Plan()) == tuple((job,) for job in jobs)
    together = groups(jobs, settings, plan(["batched-seeds"]))
    assert [len(group) for group in together] == [3] * 8
    assert [job for group in together for job in group] == list(jobs)
    flat = groups(jobs, settings, plan(["flat-sweep", "batched-seeds"]))
    longest_first = [(GNC, 32)] * 2 + [(GD, 32)] * 2 + [(GNC, 8)] * 2 + [(GD, 8)] * 2
    assert [(group[0].method, group[0].dim) for group in flat] == longest_first
    assert {job for group in flat for job in group} == set(jobs)
    assert groups((), settings, plan(["flat-sweep"])) == ()


def test_first_work_is_a_short_group_of_each_method_and_dimension(tmp_path: Path) -> None:
    settings = small(log=tmp_path / "log")
    chosen = plan(["batched-seeds", "batched-draws"])
    samples, short = first_work(groups(settings.jobs(), settings, chosen), settings, chosen)
    assert {(group[0].method, group[0].dim, len(group)) for group in samples} == {
        (method, dim, 3) for method in (GD, GNC) for dim in (8, 32)
    }
    assert (short.epochs, short.max_guesses, short.log) == (2, 64, None)
    assert first_work((), settings, chosen)[0] == ()


@pytest.mark.parametrize("fixes", [(), ("batched-seeds",)])
def test_finished_combinations_are_steps_of_the_process(
    fixes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(marks, "open_step", lambda: steps.append("open"))
    monkeypatch.setattr(marks, "step", lambda tokens=0, warmup=False: steps.append(tokens))
    facts: dict[str, Any] = {}
    monkeypatch.setattr(marks, "describe", lambda **arguments: facts.update(arguments))
    sweep(small(fixes=fixes), work=fake_jobs.work)
    assert steps == ["open", *[3 * 8, 3 * 32] * 4]
    assert (facts["device"], facts["variant"]) == ("cpu", "+".join(fixes) or "as-found")
    assert facts["step"] == "combination of method, rank and dimension"
    assert (facts["unit"], facts["seeds"], facts["student_dims"]) == ("points", "0 to 2", "8, 32")
    assert (facts["dtype"], facts["performance"]["max_memory"]) == ("float32", PerformanceConfig().max_memory)
    assert (facts["jobs_kept"], facts["jobs_to_do"]) == (0, 24)
    assert 0 < facts["start_s"] < 600
    json.dumps(facts)


def test_outcomes_are_stated_in_the_order_of_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    results: dict[str, Any] = {}
    monkeypatch.setattr(marks, "result", lambda name, values, **_: results.update({name: values}))
    settings = small()
    sweep(settings, work=fake_jobs.work)
    assert [*results] == ["guesses", "updates", "train loss", "generalization loss"]
    outcomes = fake_jobs.work(settings.jobs(), settings, Plan(), "cpu")
    assert results["train loss"] == [outcome.fit.train_loss for outcome in outcomes]
    assert results["updates"] == [outcome.fit.epochs for outcome in outcomes]


def test_a_combination_whose_job_is_given_up_is_a_step_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(marks, "step", lambda tokens=0, warmup=False: steps.append(tokens))
    settings = small(teacher_ranks=(1, fake_jobs.BAD_RANK), student_dims=(8,), gnc=False)
    result = sweep(settings, work=partial(fake_jobs.failing, tmp_path, 2))
    assert len(result.failures) == 3
    assert steps == [3 * 8, 0]


def test_what_differs_in_the_work_differs_in_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison refuses sides whose facts about their work differ; how it is done is no such fact."""
    facts: list[dict[str, Any]] = []
    monkeypatch.setattr(marks, "describe", lambda **arguments: facts.append(arguments))
    monkeypatch.setattr(group_work, "apply", lambda *_, **__: None)  # a CPU has no such products
    sweep(small(), PerformanceConfig(tf32=True), work=fake_jobs.work)
    for changed in ({}, {"epochs": 300}, {"max_guesses": 7}, {"measurements": 5}, {"first_seed": 1}, WAYS["flat"]):
        sweep(small(**changed), work=fake_jobs.work)
    assert [item["dtype"] for item in facts[:2]] == ["float32 with TF32 products", "float32"]
    work = ("dtype", "methods", "seeds", "teacher_ranks", "student_dims", "sequence_length", "measurements", "budget")
    message = [tuple(item[name] for name in work) for item in facts]
    assert len(set(message)) == 6
    assert message[-1] == message[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("times", [1, 99])
def test_a_failing_job_is_tried_twice_and_then_reported(way: str, times: int, tmp_path: Path) -> None:
    """Others of its group are done."""
    settings = small(results=tmp_path / "results", student_dims=(8,), gnc=False, **WAYS[way])
    message: list[str] = []
    result = sweep(settings, progress=message.append, work=partial(fake_jobs.failing, tmp_path, times))
    bad = [job for job in settings.jobs() if job.rank == BAD_RANK]
    lines = "\n".join(message)
    assert result.retried == 3
    assert "failed, ValueError: no luck with gd-r13-d8-s0: trying once more" in lines
    if times == 1 and not (settings.fixes and "batched-seeds" in settings.fixes):
        assert (result.done, result.failures, result.success_rate) == (6, {}, 1.0)
        assert outcomes(settings) == expected(settings)
        return
    # of a group the first job's count is the group's: alone, the others have not failed yet
    failed = {job.name: f"ValueError: no luck with {job.name}" for job in bad} if times > 1 else {}
    if times > 1:
        assert result.failures == failed
        assert result.success_rate == 0.5
        cpu = result.devices["cpu"]
        assert (cpu.jobs, cpu.failed, cpu.success_rate) == (3, 6, 1 / 3), "every attempt counts"
        where = f"its traceback is in {settings.results}"
        assert f"gd-r13-d8-s2 failed for good, ValueError: no luck with gd-r13-d8-s2; {where}" in lines
        rows = map(json.loads, (tmp_path / "results").read_text().splitlines())
        traces = [row["trace"] for row in rows if "failure" in row]
        assert len(traces) == 3
        assert all("in failing\n" in trace for trace in traces)
        assert set(outcomes(settings)) == set(settings.jobs()) - set(bad)
    second = sweep(settings, work=partial(fake_jobs.counted, tmp_path))
    assert (second.done, second.failures) == (6, {}), "and a later sweep does them"
    assert outcomes(settings) == expected(settings)


@pytest.mark.parametrize("way", ["as found", "flat"])
def test_no_room_for_reports_ends_the_sweep_at_once(way: str, tmp_path: Path) -> None:
    settings = small(results=tmp_path / "results", **WAYS[way])
    with pytest.raises(TrainerError) as caught:
        sweep(settings, work=partial(fake_jobs.refusing, tmp_path))
    done = len(outcomes(settings))
    assert 1 <= done < 24
    assert str(caught.value) == (
        f"--log x: No space left on device; the sweep ended after {done} jobs, which are in {settings.results}: "
        "the same command continues from there"
    )
    assert done <= len((tmp_path / "refusing").read_text().splitlines()) <= done + 2, "no job is tried twice"
    assert sweep(settings, work=fake_jobs.work).kept == done


def test_a_job_that_kills_its_workers_is_reported_and_the_others_are_done(tmp_path: Path) -> None:
    settings = small(results=tmp_path / "results", num_seeds=1, gnc=False, **POOL)
    result = sweep(settings, work=partial(fake_jobs.deadly, tmp_path, 1))
    assert (result.done, result.failures, result.retried) == (4, {}, 2), "killed once each: done again"
    (tmp_path / "results").unlink()
    for path in tmp_path.glob("gd-*"):
        path.unlink()
    result = sweep(settings, work=partial(fake_jobs.deadly, tmp_path, 99))
    assert set(result.failures) == {"gd-r13-d8-s0", "gd-r13-d32-s0"}
    assert {len(path.read_text().split()) for path in tmp_path.glob("gd-*")} == {2}
    assert result.devices["cpu"].failed == 4
    assert set(result.failures.values()) == {"2 workers that ran it died: killed, or out of memory"}
    assert result.done == 2


def test_a_killed_group_is_split_so_that_one_bad_seed_does_not_take_the_others(tmp_path: Path) -> None:
    settings = small(num_seeds=3, student_dims=(8,), gnc=False, **WAYS["flat and batched"])
    result = sweep(settings, work=partial(fake_jobs.deadly, tmp_path, 3))
    assert result.failures == {}, "the group twice, the first job of it once more"
    assert result.done == 6


def test_what_is_done_is_not_done_again_and_a_sweep_may_grow(tmp_path: Path) -> None:
    settings = small(results=tmp_path / "results")
    sweep(settings, work=partial(fake_jobs.counted, tmp_path))
    (tmp_path / "calls").unlink()
    second = sweep(settings, work=partial(fake_jobs.counted, tmp_path))
    assert calls(tmp_path) == []
    assert (second.done, second.kept, second.success_rate, second.jobs_per_s) == (24, 24, None, None)
    grown = small(results=tmp_path / "results", num_seeds=4, **WAYS["flat and batched"])
    sweep(grown, work=partial(fake_jobs.counted, tmp_path))
    assert sorted(calls(tmp_path)) == sorted(job.name for job in grown.jobs() if job.seed == 3)
    assert outcomes(grown) == expected(grown)


@pytest.mark.parametrize("way", ["as found", "flat"])
def test_workers_that_cannot_work_are_one_line(way: str) -> None:
    with pytest.raises(TrainerError, match="the workers cannot be used: ImportError: no such library"):
        sweep(small(**WAYS[way]), work=fake_jobs.unprepared)


@pytest.mark.parametrize("bad", [{"fixes": ("nope",)}, {"variant": "nope"}, {"device": "cuda:99"}])
def test_bad_settings_leave_no_results_file(bad: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TrainerError):
        sweep(small(**{"results": tmp_path / "results", **bad}))
    assert not (tmp_path / "results").exists()


def test_ctrl_c_while_the_results_are_opened_has_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResultFile, "__init__", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt, match="interrupted after 0 jobs"):
        sweep(small())


def test_a_second_sweep_into_the_same_results_is_refused(tmp_path: Path) -> None:
    settings = small(results=tmp_path / "results")
    with closing(ResultFile(settings.results, settings)), pytest.raises(TrainerError, match="another sweep writes"):
        sweep(settings, work=partial(fake_jobs.counted, tmp_path))
    assert calls(tmp_path) == []


def test_a_disk_that_fills_up_loses_nothing_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, write = small(results=tmp_path / "results", **POOL), os.write

    def nearly_full(file: int, data: bytes) -> int:
        if (room := 2000 - os.fstat(file).st_size) <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:room])

    with monkeypatch.context() as patched:
        patched.setattr(result_file.os, "write", nearly_full)
        message = "No space left on device; its content is complete; free some space and start again"
        with pytest.raises(TrainerError, match=message):
            sweep(settings, work=fake_jobs.work)
    before = outcomes(settings)
    assert 2 <= len(before) < 24
    result = sweep(settings, work=fake_jobs.work)
    assert (result.kept, result.done) == (len(before), 24)
    assert outcomes(settings) == expected(settings)


def test_memory_is_divided_anew_only_where_others_came(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []
    monkeypatch.setattr(group_work, "_sharing", {})
    monkeypatch.setattr(group_work, "apply", lambda config, device, *, sharing: requested.append(sharing))
    settings = Settings()
    context = SweepContext(settings, Plan(), PerformanceConfig(), fake_jobs.work)
    group, alone = settings.jobs()[:1], WorkerSlot("cpu", "cpu")
    group_work.prepare(context, (), settings, alone)
    group_work.do(context, group, alone)
    assert requested == [1]
    for _ in range(3):
        group_work.do(context, group, alone._replace(sharing=4))
    assert requested == [1, 4]
    group_work.prepare(context, (), settings, alone._replace(sharing=4))
    assert requested == [1, 4, 4], "another sweep may have other settings"


# ---------------------------------------------------------------- ended from outside


@pytest.mark.parametrize(
    ("flat", "end"),
    [
        (True, signal.SIGINT),
        *(pytest.param(True, end, marks=pytest.mark.slow) for end in (signal.SIGTERM, signal.SIGKILL)),
        *(pytest.param(False, end, marks=pytest.mark.slow) for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
    ],
)
def test_a_sweep_that_was_ended_goes_on_from_its_results(tmp_path: Path, end: signal.Signals, flat: bool) -> None:
    """Two workers, or the sweep itself, are in a job without an end; all jobs before it are done."""
    jobs = {"num_seeds": 8, "student_dims": (8,), "gnc": False}
    options = {**jobs, "teacher_ranks": (1, BAD_RANK), "workers": 2, "fixes": ("flat-sweep",) if flat else ()}
    arguments = (f"{name}={value!r}" for name, value in options.items())
    argv = ("-m", "tests.reference_trainer.ssm.sweeping", str(tmp_path), "endless", *arguments)
    process = started(*argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, process_group=0)
    endless = tmp_path / "endless"
    while not endless.exists() or len(endless.read_text().split()) < (2 if flat else 1):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    if end == signal.SIGINT:
        os.killpg(process.pid, end)  # Ctrl-C on a terminal reaches the workers, too
    else:
        process.send_signal(end)
    _, err = process.communicate(timeout=60)
    assert all(map(gone, map(int, endless.read_text().split()))), "a worker is left"
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
    assert process.returncode == codes[end]
    if end != signal.SIGKILL:
        message = f"interrupted: 8 of 16 jobs are in {tmp_path}/results, the same command continues from there\n"
        assert err == message
    done = calls(tmp_path)
    settings = small(results=tmp_path / "results", **jobs)
    assert {job.name for job in outcomes(settings)} == set(done)
    assert len(done) == 8
    result = sweep(settings, work=partial(fake_jobs.counted, tmp_path))
    assert (result.kept, result.done) == (8, 16)
    assert sorted(calls(tmp_path)) == sorted(job.name for job in settings.jobs()), "each job is done once"
    assert outcomes(settings) == expected(settings)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1, 1.5, 2, 3, 4, 5])
def test_ctrl_c_on_a_terminal_while_workers_start_is_one_line(seconds: float) -> None:
    """It also reaches the server that forks workers, while that loads its libraries."""
    command = ("-m", "reference_trainer.ssm", "--variant", "fixed", "--device", "cpu", "--num-seeds", "2000")
    process = started(*command, process_group=0, stdout=subprocess.DEVNULL)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("\n")) == (130, 1), err
    assert err.startswith("interrupted after ")
