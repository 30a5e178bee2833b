"""The figures of a sweep, from made-up outcomes; and the sampler of how busy devices are."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import asdict

import pytest

from reference_trainer.ssm import statistics
from reference_trainer.ssm.engines.inline import Inline
from reference_trainer.ssm.group_work import GroupResult
from reference_trainer.ssm.problem import GD, GNC, Fit, Job, Outcome
from reference_trainer.ssm.statistics import Utilization, cells, plain, used


def outcomes(method: str, dim: int, losses: list[float]) -> list[Outcome]:
    return [
        Outcome(Job(method, 1, dim, seed), Fit(loss / 10, loss, loss < 3, epochs=seed), 0.1, 100 * (seed + 1), "cpu")
        for seed, loss in enumerate(losses)
    ]


def test_cells_are_medians_over_seeds_in_order() -> None:
    created = [*outcomes(GNC, 8, [1.0]), *outcomes(GD, 16, [5.0, 1.0, 3.0, 2.0, 4.0]), *outcomes(GD, 8, [2.0, 4.0])]
    result = cells(created)
    assert [(cell.method, cell.dim, cell.jobs, cell.fitted) for cell in result] == [
        (GD, 8, 2, 1),
        (GD, 16, 5, 2),
        (GNC, 8, 1, 1),
    ]
    assert result[1].generalization_loss == 3.0
    assert result[1].generalization_quartiles == (2.0, 4.0)
    assert result[1].train_loss == pytest.approx(0.3)
    assert result[1].epochs == 2
    assert result[2].generalization_quartiles == (1.0, 1.0)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_training_that_diverged_is_the_largest_loss(odd: float) -> None:
    [cell] = cells(outcomes(GD, 8, [odd, 1.0, 2.0, 1.5, 1.2]))
    assert cell.generalization_loss == 1.5
    assert cell.generalization_quartiles == (1.2, 2.0)
    [cell] = cells(outcomes(GD, 8, [odd] * 3))
    assert cell.generalization_loss == math.inf


def test_values_that_json_cannot_represent_become_null() -> None:
    [cell] = cells(outcomes(GD, 8, [math.inf]))
    result = json.loads(json.dumps(plain({"cells": (asdict(cell),)}), allow_nan=False))
    assert result["cells"][0]["generalization_loss"] is None
    assert result["cells"][0]["dim"] == 8


def test_each_device_has_its_jobs_success_and_memory() -> None:
    done = outcomes(GD, 8, [1.0, 2.0])
    engine = Inline()
    engine.device_names = ("cuda:0", "cuda:1")
    worked = [GroupResult(done, "cuda:0", 1, 0.5, 0.5, 2), GroupResult(done[:1], "cuda:0", 1, 0.25, 0.25, 2)]
    devices = used(worked, {"cuda:0": 1, "cuda:2": 2, "": 9}, engine, Utilization(()), 1.0)
    first = devices["cuda:0"]
    assert (first.jobs, first.failed, first.success_rate, first.busy) == (3, 1, 0.75, 0.75)
    assert first.memory_per_job == pytest.approx(400 / 3)
    idle, broken = devices["cuda:1"], devices["cuda:2"]
    assert (idle.jobs, idle.failed, idle.success_rate, idle.memory_per_job, idle.busy) == (0, 0, None, None, 0.0)
    assert (broken.failed, broken.success_rate) == (2, 0.0)
    assert list(devices) == ["cuda:0", "cuda:1", "cuda:2"]


def test_gpus_are_sampled_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read, enough = [], threading.Event()

    def share(name: str) -> float:
        read.append(name)
        if len(read) >= 4:
            enough.set()
        return 0.25 if name == "cuda:0" else 0.75

    monkeypatch.setattr(statistics, "gpu_load", share)
    with Utilization(["cuda:0", "cpu", "cuda:1"]) as result:
        assert enough.wait(30)
    assert (result.mean("cuda:0"), result.mean("cuda:1")) == (0.25, 0.75)
    assert result.mean("cpu") is None
    assert "cpu" not in read
    after = len(read)
    with Utilization(["cpu"]):
        pass
    assert len(read) == after, "nothing is sampled where there is no GPU, or after the end"


def test_a_driver_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> float:
        raise RuntimeError("NVML is\nnot there")

    monkeypatch.setattr(statistics, "gpu_load", fail)
    with Utilization(["cuda:0"]) as result:
        result._thread.join(30)
    assert (result.mean("cuda:0"), result.why) == (None, "NVML is not there")
