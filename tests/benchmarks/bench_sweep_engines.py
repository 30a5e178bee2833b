"""What the engines of a sweep cost: 1,000 empty jobs through each, and what the second worker of a pool adds."""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from contextlib import closing

import pytest

from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import open_engine
from reference_trainer.ssm.settings import Settings
from reference_trainer.ssm.sweep import sweep
from tests.benchmarks.measure import ratio
from tests.reference_trainer.ssm import fake_jobs

pytestmark = pytest.mark.slow
JOBS = 1_000
ROUNDS = 5
PAIRS = 5
BAR = 1.7  # two workers over one, on two cores
ENGINES = ("inline", "pool", *(["ray"] if importlib.util.find_spec("ray") else []))


@pytest.mark.parametrize("name", ENGINES)
def test_empty_tasks(name: str) -> None:
    """Of the engine alone."""
    with closing(open_engine(name)) as engine:
        engine.start(engine.find_devices("cpu", PerformanceConfig(), 2), fake_jobs.ready)
        found = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            assert sum(1 for _ in engine.run(fake_jobs.squared, range(JOBS))) == JOBS
            found.append((time.perf_counter() - began) / JOBS * 1e6)
    print(f"\n{name}, workers: {engine_workers(name)}: {statistics.median(found):,.1f} µs a task ({spread(found)})")


@pytest.mark.parametrize("name", ENGINES)
def test_empty_jobs_of_a_sweep(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With the file of results."""
    found = []
    for number in range(ROUNDS):
        results = tmp_path_factory.mktemp("sweep") / f"results-{number}"
        settings = Settings(
            num_seeds=JOBS // 4,
            teacher_ranks=(1,),
            student_dims=(8, 16),
            device="cpu",
            fixes=("flat-sweep",),
            engine=name,
            workers=engine_workers(name),
            results=results,
        )
        done = sweep(settings, work=fake_jobs.work)
        assert done.done == JOBS
        found.append(done.wall_s / JOBS * 1e6)
    print(f"\n{name}, workers: {engine_workers(name)}: {statistics.median(found):,.1f} µs a job ({spread(found)})")


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing can run beside")


@two_cores
def test_two_workers_over_one_of_arithmetic() -> None:
    """What the machine gives to two processes that do not share anything: the ceiling of the next one."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    tasks = [400_000] * 60
    for workers in order():
        with closing(open_engine("pool")) as engine:
            engine.start(engine.find_devices("cpu", PerformanceConfig(), workers), fake_jobs.ready)
            began = time.perf_counter()
            assert len(list(engine.run(fake_jobs.busy, tasks))) == len(tasks)
            rates[workers].append(len(tasks) / (time.perf_counter() - began))
    print(f"\ntwo workers over one, arithmetic: {ratio(rates[2], rates[1])}")


@two_cores
def test_two_workers_over_one() -> None:
    """Real jobs: as found but for the pool."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for workers in order():
        settings = Settings(num_seeds=10, student_dims=(8, 32), device="cpu", fixes=("flat-sweep",), workers=workers)
        found = sweep(settings)
        rates[workers].append(found.jobs_per_s)
        print(f"workers: {workers}, {found.jobs_per_s:.1f} jobs/s, {found.devices['cpu']}")
    gain = ratio(rates[2], rates[1])
    print(f"\ntwo workers over one: {gain}")
    assert gain.value >= BAR, gain


def order() -> list[int]:
    """Numbers of workers, by turns."""
    return [workers for pair in range(PAIRS) for workers in ((1, 2) if pair % 2 else (2, 1))]


def engine_workers(name: str) -> int:
    return 1 if name == "inline" else 2


def spread(values: list[float]) -> str:
    return f"{min(values):,.1f} to {max(values):,.1f} in {len(values)} rounds"
