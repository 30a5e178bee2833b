"""Every CUDA kernel in Numba's simulator against NumPy or the host device, launched with buffers on the CPU."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.record import schedule
from profiler.record.schedule import TrainerOption
from reference_trainer.report.trainers import LM
from tests.reference_trainer.kernels import cases, checks
from tests.reference_trainer.kernels.simulated import errors_of
from tests.reference_trainer.ssm.simulate import CHECKS

TRAINER, SWEEP = "tests.reference_trainer.kernels.simulate", "tests.reference_trainer.ssm.simulate"
VIRTUAL = "tests.reference_trainer.kernels.simulate_virtual"
NAMES = [
    *map(checks.name, cases.FEW),
    *(cases.name(way, case) for way in cases.WAYS for case in way.few),
    *("forwards", "graphed chunks", "learning", "graphed learning", "graph", "benchmarks", "empty"),
]

ALL = [*((TRAINER, name) for name in NAMES), *((SWEEP, name) for name in CHECKS)]

pytest.importorskip("numba_cuda")
errors_of_all = functools.cache(errors_of)


@pytest.mark.slow
def test_a_smoke_test_in_the_simulator() -> None:
    """Some seconds, where all kernels take half a minute."""
    names = (checks.name(cases.FEW[0]), "empty")
    assert errors_of(TRAINER, *names) == dict.fromkeys(names, "")


def test_on_a_virtual_gpu() -> None:
    names = ("sequences", "counts")
    assert errors_of(VIRTUAL, *names) == dict.fromkeys(names, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learning", "graphed chunks", "benchmark", "sweep"])
def test_more_on_a_virtual_gpu(name: str) -> None:
    assert errors_of(VIRTUAL, name) == {name: ""}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"), [*((TRAINER, name) for name in NAMES), *((SWEEP, name) for name in CHECKS)]
)
def test_in_the_simulator(module: str, name: str) -> None:
    errors = errors_of_all(module)
    assert name in errors, f"not run; these were: {', '.join(errors)}"
    assert not errors[name], errors[name]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compare_on_a_virtual_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stage of scripts/gpu.sh, with a smaller model and shorter chunks."""
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    small = replace(
        LM,
        module="tests.reference_trainer.kernels.simulated_lm",
        options={**LM.options, "tokens-per-chunk": TrainerOption("tokens of a chunk")},
    )
    monkeypatch.setattr(schedule, "trainers", lambda: {"lm": small})
    size = ["--preset", "tiny", "--tokens-per-chunk", "2", "--pairs", "1", "--seconds", "0.2"]
    assert main(["compare", "--device", "cuda", *size, "--anyway", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["comparable"], found["mismatches"]
    assert {"predictions", "state", "loss"} <= {result["name"] for result in found["results"]}
    assert all(result["compared"] and result["difference"] is None for result in found["results"]), found["results"]
    assert found["sides"][0]["measures"]["syncs_per_step"]["value"] == 4, "two for each of two tokens"
