"""The roofline: its calls are those that the CUDA device makes, and the preset gpu is the one that it recommends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.errors import TrainerError
from reference_trainer.lm.model import PRESETS, ModelConfig, initial_weights
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from reference_trainer.lm.roofline import (
    CARDS,
    Call,
    Card,
    _sums,
    as_found_token,
    estimate,
    facts,
    find_card,
    fixed_chunk,
    table,
)

AS_FOUND_BUSY, FIXED_BUSY, RATIO = 0.20, 0.85, 300.0
"""What a case must reach that shows the illness and its cure: at most, at least, at least."""
TOKENS = 70  # two blocks of time
WIDE, NARROW = ModelConfig(600, 3, 500), ModelConfig(37, 2, 101)


class Counting(CudaDevice):
    """Counts calls by kind and number of arrays; kernels are not run."""

    def __init__(self) -> None:
        super().__init__(_torch_device="cpu")
        self.calls: Counter[tuple[str, int]] = Counter()

    def start(self, function: object, blocks: int, threads: int, *arguments: object) -> None:
        self.calls["launch", sum(type(argument) is not int for argument in arguments)] += 1

    def _put(self, *arguments: object, **options: object) -> None:
        self.calls["product", 0] += 1

    def counted(self) -> Counter[tuple[str, int]]:
        counts = self.counts()
        return self.calls + Counter({("copy", 0): counts.h2d + counts.d2h, ("allocate", 0): counts.allocations})


def made(config: ModelConfig, chosen: Plan) -> Counter[tuple[str, int]]:
    """The calls of a chunk of TOKENS tokens, after one that allocates scratch memory."""
    device = Counting()
    tested = Pipeline(device, config, initial_weights(config, seed=0), TOKENS, chosen)
    before: Counter[tuple[str, int]] = Counter()
    for _ in range(2):
        before = device.counted()
        tested.submit(np.zeros(TOKENS + 1, np.int32))
        tested.collect()
    return device.counted() - before


def modelled(calls: Iterable[Call], times: int) -> Counter[tuple[str, int]]:
    single = Counter((call.kind, call.arrays) for call in calls)
    return Counter({kind: times * number for kind, number in single.items()})


@pytest.mark.parametrize("config", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_calls_are_those_of_the_device(config: ModelConfig) -> None:
    recurrence, decoding = as_found_token(config)
    modulate = Counter({("launch", 3): 1})
    assert made(config, Plan()) == modelled([*recurrence, *decoding], TOKENS) + modulate
    fixed = plan(variant_fixes("fixed", "host"))
    assert made(config, fixed) == modelled(fixed_chunk(config, TOKENS), 1)


def test_a_token_as_found_reads_all_weights_of_base() -> None:
    config = PRESETS["base"]
    moved = sum(call.moved for segment in as_found_token(config) for call in segment)
    assert moved == pytest.approx(4 * (8 * 2 * 4096**2 + 2 * 4096**2), rel=0.01)
    assert estimate(config, CARDS["h200"], factor=1e-9).as_found_s == pytest.approx(moved / 4.8e12, rel=0.2)


def margin(config: ModelConfig) -> float:
    """By which factor the model may be wrong at least, on any card, before the case misses one of its three bounds."""
    return min(_margin(config, card) for card in CARDS.values())


def _margin(config: ModelConfig, card: Card) -> float:
    result = estimate(config, card)
    host, device = _sums(fixed_chunk(config, 3000), card, "fp32", 1.0)
    return min(AS_FOUND_BUSY / result.as_found_busy, device / host / FIXED_BUSY, result.ratio / RATIO)


def test_gpu_has_the_widest_margin() -> None:
    margins = {width: margin(ModelConfig(width, 4, 4096)) for width in range(128, 2049, 64)}
    assert max(margins, key=lambda width: margins[width]) == PRESETS["gpu"].width
    assert margins[PRESETS["gpu"].width] > 1.3, "each bound is met by a third more than needed"
    for card in CARDS.values():
        result = estimate(PRESETS["gpu"], card)
        assert result.as_found_busy <= AS_FOUND_BUSY
        assert result.fixed_busy >= FIXED_BUSY
        assert result.ratio >= RATIO
    assert margin(PRESETS["base"]) < 0.3, "base shows it on no card"


def test_a_slower_host_makes_as_found_slower_and_a_graph_helps() -> None:
    quick, slow = (estimate(PRESETS["gpu"], CARDS["b200"], factor=factor) for factor in (0.5, 2.0))
    assert quick.as_found_s < slow.as_found_s
    assert quick.as_found_busy > slow.as_found_busy
    assert quick.fixed_busy == 1
    assert slow.fixed_busy < 1
    assert estimate(PRESETS["gpu"], CARDS["b200"], factor=2.0, graph=True).fixed_busy == 1


def test_tables_and_facts() -> None:
    lines = list(table("gpu", PRESETS["gpu"], "all", "fp32", 3000))
    assert "A model, not a measurement" in lines[1]
    assert [line.split()[0] for line in lines[2::5]] == ["A100", "H100", "H200", "B200"]
    assert all(len(line) <= 120 for line in lines)
    with pytest.raises(TrainerError, match="--roofline v100: choose one of a100, h100, h200, b200, or all"):
        list(table("gpu", PRESETS["gpu"], "v100", "fp32", 3000))
    stated = facts(PRESETS["gpu"], "NVIDIA H100 80GB HBM3", "fp32", 3000)
    assert stated is not None
    assert stated["card"] == "H100 SXM"
    assert stated["ratio"][0] > RATIO
    for other in (
        "NVIDIA H100 PCIe",
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA GH200 480GB",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    ):
        assert find_card(other) is None, other
