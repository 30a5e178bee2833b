"""What the engines of a sweep cost: 1,000 empty jobs through each, and what the second worker of a pool adds."""

from __future__ import annotations

import importlib.util
import statistics
from contextlib import closing

import pytest

from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import open_engine
from reference_trainer.ssm.settings import Settings
from reference_trainer.ssm.sweep import sweep
from tests.benchmarks.measure import BAR, interleaved, ratio, seconds, two_cores
from tests.reference_trainer.ssm import fake_jobs

pytestmark = pytest.mark.slow
JOBS = 1_000
ROUNDS = 5
PAIRS = 5
ENGINES = ("inline", "pool", *(["ray"] if importlib.util.find_spec("ray") else []))


@pytest.mark.parametrize("name", ENGINES)
def test_empty_tasks(name: str) -> None:
    with closing(open_engine(name)) as engine:
        engine.start(engine.find_devices("cpu", PerformanceConfig(), engine_workers(name)), fake_jobs.ready)
        assert len(list(engine.run(fake_jobs.squared, range(JOBS)))) == JOBS
        times = [seconds(lambda: list(engine.run(fake_jobs.squared, range(JOBS)))) / JOBS * 1e6 for _ in range(ROUNDS)]
    print_spread(name, "a task", times)


@pytest.mark.parametrize("name", ENGINES)
def test_empty_jobs_of_a_sweep(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A sweep also writes the file of results."""
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
    print_spread(name, "a job", found)


@two_cores
def test_two_workers_over_one_of_arithmetic() -> None:
    """What the machine gives to two processes that share nothing: the ceiling of the next test."""

    def measure(workers: int) -> float:
        with closing(open_engine("pool")) as engine:
            engine.start(engine.find_devices("cpu", PerformanceConfig(), workers), fake_jobs.ready)
            return seconds(lambda: list(engine.run(fake_jobs.busy, [400_000] * 60)))

    times = interleaved({count: lambda _, count=count: measure(count) for count in (1, 2)}, PAIRS)
    print(f"\ntwo workers over one, arithmetic: {ratio(times[1], times[2])}")


@two_cores
def test_two_workers_over_one() -> None:
    """Real jobs: as found but for the pool."""

    def measure(workers: int) -> float:
        settings = Settings(num_seeds=10, student_dims=(8, 32), device="cpu", fixes=("flat-sweep",), workers=workers)
        return sweep(settings).jobs_per_s

    rates = interleaved({count: lambda _, count=count: measure(count) for count in (1, 2)}, PAIRS)
    gain = ratio(rates[2], rates[1])
    print(f"\ntwo workers over one: {gain}")
    assert gain.value >= BAR, gain


def engine_workers(name: str) -> int | None:
    return None if name == "inline" else 2


def print_spread(name: str, unit: str, times: list[float]) -> None:
    print(
        f"\n{name}, workers: {engine_workers(name) or 1}: {statistics.median(times):,.1f} µs {unit} "
        f"({min(times):,.1f} to {max(times):,.1f} in {len(times)} rounds)"
    )
