"""Settings are checked in one place, whether they come from a file or from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm.settings import Settings
from reference_trainer.performance import PerformanceConfig, add_options, from_options, perf_config, refuse
from reference_trainer.ssm.settings import Settings as Sweep
from reference_trainer.ssm.sweep import sweep
from tests.reference_trainer.processes import refusal


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_load": 0}, "max_load is 0, it must be a share, above 0 and at most 1"),
        ({"max_load": 1.01}, "max_load is 1.01"),
        ({"max_load_wait": -1}, "max_load_wait is -1, it must be a number of seconds, 0 (do not wait) or more"),
        ({"max_load_wait": 5}, "max_load_wait waits for nothing at max_load 1, any load: lower max_load"),
        ({"max_memory": -0.5}, "max_memory is -0.5"),
        ({"max_memory": float("nan")}, "max_memory is nan"),
        ({"max_memory": "half"}, "max_memory is 'half', it must be a number"),
        ({"num_devices": 0}, "num_devices is 0, it must be at least 1"),
        ({"num_devices": 1.5}, "num_devices is 1.5, it must be a whole number"),
        ({"num_devices": True}, "num_devices is True, it must be a whole number"),
        ({"empty_cache_frequency": -1}, "empty_cache_frequency is -1, it must be 0 (never) or more"),
        ({"empty_cache_frequency": None}, "empty_cache_frequency is None"),
        ({"cudnn_benchmark": 1}, "cudnn_benchmark is 1, it must be true or false"),
        ({"tf32": "no"}, "tf32 is 'no', it must be true or false"),
        ({"precision": "fp8"}, "precision is 'fp8', it must be one of fp32, bf16, fp16"),
        ({"precision": 32}, "precision is 32, it must be a text"),
        ({"cudnn_benchmark": True, "cudnn_deterministic": True}, "contradict each other: choose one"),
        ({"tf32": True, "precision": "bf16"}, "tf32 is of fp32 products, precision is bf16"),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    line = refusal(PerformanceConfig, **values)
    assert line.startswith("performance: ")
    assert message in line


def test_the_extremes_that_are_allowed() -> None:
    PerformanceConfig(max_load=1, max_memory=1e-9, num_devices=1, empty_cache_frequency=0)
    PerformanceConfig(cudnn_deterministic=True, tf32=True, precision="fp32")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "performance.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[other]\nx = 1\n[performance]\nmax_memory = 0.5\nnum_devices = 2\nprecision = "bf16"\n')
    assert PerformanceConfig.load(path) == PerformanceConfig(max_memory=0.5, num_devices=2, precision="bf16")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "there is no section [performance] in it"),
        (b"performance = 3\n", "there is no section [performance] in it"),
        (b"[performance]\nmax_lod = 1\n", "unknown setting 'max_lod', choose from max_load, max_load_wait, max_memory"),
        (b"[performance]\nmax_load = 2\n", "max_load is 2, it must be"),
        (b"[performance\n", "performance.toml: Expected"),
        (b"\xff\xfe", "performance.toml: "),
        (None, "performance.toml: No such file"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "performance.toml"
    if content is not None:
        path.write_bytes(content)
    assert message in refusal(PerformanceConfig.load, path)


def parsed(*arguments: str) -> PerformanceConfig:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return from_options(parser.parse_args(arguments))


def test_options_alone() -> None:
    assert parsed() == PerformanceConfig()
    for options, values in (
        ("--max-load 0.5 --max-memory 0.25 --num-devices 3", {"max_load": 0.5, "max_memory": 0.25, "num_devices": 3}),
        ("--max-load 0.5 --max-load-wait 30", {"max_load": 0.5, "max_load_wait": 30.0}),
        ("--cudnn-deterministic --tf32", {"cudnn_deterministic": True, "tf32": True}),
        ("--cudnn-benchmark --precision fp16", {"cudnn_benchmark": True, "precision": "fp16"}),
        ("--empty-cache-frequency 7", {"empty_cache_frequency": 7}),
    ):
        assert parsed(*options.split()) == PerformanceConfig(**values), options


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[performance]\ntf32 = true\nmax_load = 0.5\ncudnn_benchmark = true\n")
    result = parsed("--performance", str(path), "--no-tf32", "--max-load", "1")
    assert result == PerformanceConfig(cudnn_benchmark=True)
    # neither is wrong by itself
    with pytest.raises(TrainerError, match="contradict"):
        parsed("--performance", str(path), "--cudnn-deterministic")
    with pytest.raises(TrainerError, match="--performance is empty"):
        parsed("--performance", "")


@pytest.fixture
def _unset() -> Iterator[None]:
    yield
    del perf_config.current


@pytest.mark.usefixtures("_unset")
def test_the_global_settings_are_those_of_programs_without_their_own() -> None:
    perf_config.max_gpu_load, perf_config.max_gpu_memory, perf_config.max_gpus = 0.5, 0.25, 2
    perf_config.cudnn_benchmark, perf_config.empty_cache_frequency = True, 7
    values = {"max_load": 0.5, "max_memory": 0.25, "num_devices": 2, "cudnn_benchmark": True}
    expected = PerformanceConfig(**values, empty_cache_frequency=7)
    assert perf_config.current == parsed() == Settings().performance == expected
    assert (perf_config.max_gpu_memory, perf_config.num_devices) == (0.25, 2)
    overridden = PerformanceConfig(**{**values, "max_memory": 1.0})
    assert parsed("--max-memory", "1", "--empty-cache-frequency", "0") == overridden
    perf_config.precision = "bf16"
    assert "precision means nothing here" in refusal(sweep, Sweep(num_seeds=1))
    assert "max_load is 2" in refusal(setattr, perf_config, "max_gpu_load", 2)
    assert "unknown setting 'max_gpu', choose from max_load, " in refusal(setattr, perf_config, "max_gpu", 2)


def test_refusing_what_means_nothing() -> None:
    why = {"tf32": "a CPU has none", "max_load": "it is alone"}
    refuse(PerformanceConfig(max_memory=0.5, tf32=False), why)
    assert PerformanceConfig(tf32=True, max_load=0.5, num_devices=None).changed == ("max_load", "tf32")
    line = refusal(refuse, PerformanceConfig(tf32=True), why)
    assert line == "performance setting tf32 means nothing here: a CPU has none; leave it out"
