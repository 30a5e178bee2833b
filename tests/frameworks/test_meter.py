"""Phases, throughput and MFU, on a clock of the test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from profiler import marks
from profiler.frameworks import meter
from profiler.frameworks.meter import Meter, Phase, count_batch, count_flops, known_peak
from tests.frameworks.examples import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(marks, "now", clock)
    return clock


def test_evaluations_and_checkpoints_are_no_part_of_the_throughput(clock: Clock) -> None:
    measured = Meter(6e3, 1e6, devices=2)
    for phase, ms in (
        (Phase.MODEL, 300),
        (Phase.EVALUATION, 5_000),
        (Phase.LOG, 100),
        (Phase.CHECKPOINT, 2_000),
        (Phase.MODEL, 100),
    ):
        clock.pass_ms(ms)
        measured.passed(phase)
    assert measured.values(4, tokens=50) == pytest.approx({
        "profiler/tokens_per_second": 100, "profiler/mfu": 100 * 6e3 / 2e6, "profiler/ms_forward_and_backward": 100,
        "profiler/ms_evaluation": 1250, "profiler/ms_log": 25, "profiler/ms_checkpoint": 500,
    })  # fmt: skip
    assert measured.values(4, tokens=50) == {}, "the values begin anew"


@pytest.mark.parametrize(("flops", "peak", "tokens"), [(None, 1e6, 5), (6e3, None, 5), (6e3, 1e6, 0)])
def test_there_is_no_mfu_where_something_is_unknown(
    clock: Clock, flops: float | None, peak: float | None, tokens: int
) -> None:
    measured = Meter(flops, peak)
    clock.pass_ms(500)
    measured.passed(Phase.MODEL)
    unit = "tokens" if tokens else "samples"
    expected = {f"profiler/{unit}_per_second": 10, "profiler/ms_forward_and_backward": 500}
    assert measured.values(1, tokens=tokens, samples=5) == pytest.approx(expected)


def test_only_what_hooks_do_not_record_is_marked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    recorder = SimpleNamespace(
        detailed=True, thread=SimpleNamespace(depth=2), region=lambda *region: seen.append(region)
    )
    monkeypatch.setattr(marks, "recorder", lambda: recorder)
    measured = Meter(None, None)
    for phase in (Phase.MODEL, Phase.LOG, Phase.EVALUATION, Phase.CHECKPOINT):
        clock.pass_ms(1)
        measured.passed(phase)
    recorder.detailed = False  # level light
    measured.passed(Phase.LOG)
    assert seen == [("log", 1_000_000, 2), ("evaluation", 2_000_000, 2), ("checkpoint", 3_000_000, 2)]


def test_embeddings_have_no_operations() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 3))
    assert count_flops(model) == 6 * (4 * 3 + 3)
    assert count_flops(torch.nn.Embedding(10, 4)) is None


def test_the_peak_of_an_unknown_device_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert known_peak(half=True) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name, half, tf32 in (("NVIDIA H200", 989.4e12, 494.7e12), ("NVIDIA H200 MIG 1g.18gb", None, None)):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda name=name: name)
        assert (known_peak(half=True), known_peak(half=False)) == (half, tf32)


def test_the_peaks_are_those_of_dense_products() -> None:
    assert all(2 <= half / tf32 < 2.1 for half, tf32 in meter._PEAKS.values() if half != 362e12)
    assert meter._PEAKS["NVIDIA L40S"] == (362e12, 183e12)


def test_the_size_of_a_batch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ids = torch.zeros(4, 8, dtype=torch.long)
    assert count_batch({"input_ids": ids, "labels": ids}) == (32, 4)
    assert count_batch([torch.zeros(3, 2), torch.zeros(3)]) == (0, 3)
    assert count_batch(("name", {"x": torch.zeros(5)})) == (0, 5)
    assert count_batch(torch.tensor(1.0)) == (0, 0)
    assert count_batch(None) == (0, 0)
