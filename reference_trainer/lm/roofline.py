"""A roofline of the language model on a GPU: how fast it would be as found and fixed. A model, not a measurement.

The calls, bytes and operations follow from the model's shape and from the CUDA part of each kernel
(`tests/reference_trainer/lm/test_roofline.py` compares the calls with those of the device). The peaks of the cards are
those of NVIDIA's data sheets, and the costs of calls on the host were measured by others; each has its source below.
What is unknown is shown as a range: every cost on the host is halved and doubled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.kernels.on_cuda import ONE_BLOCK_ELEMENTS
from reference_trainer.kernels.time_blocks import time_blocks
from reference_trainer.lm.model import ModelConfig


@dataclass(frozen=True, slots=True)
class Card:
    """The peaks of a GPU."""

    name: str
    bytes_per_s: float
    """Bandwidth of its memory."""
    flops: Mapping[str, float]
    """By dtype: dense matrix products, without sparsity."""
    source: str


CARDS: Final = {
    "a100": Card(
        "A100 SXM 80 GB",
        2.039e12,
        {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12},
        "NVIDIA A100 Tensor Core GPU data sheet, nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    ),
    "h100": Card(
        "H100 SXM",
        3.35e12,
        {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12},
        "NVIDIA H100 Tensor Core GPU data sheet, nvidia.com/h100 (half of its figures with sparsity)",
    ),
    "h200": Card(
        "H200 SXM",
        4.8e12,
        {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12},
        "NVIDIA H200 Tensor Core GPU data sheet, nvidia.com/h200 (half of its figures with sparsity)",
    ),
    "b200": Card(
        "B200 SXM",
        7.7e12,
        {"fp32": 75e12, "tf32": 1100e12, "bf16": 2250e12},
        "NVIDIA HGX B200 data sheet, as third parties quote it: an eighth of eight cards (half with sparsity)",
    ),
}
"""The peaks were read on pages that quote these data sheets."""

# Costs on the host, in seconds.
_OWN_PYTHON: Final = 1.7e-6
"""The trainer's own code around a call: as found, a token of preset tiny takes 22 µs on the host device and makes 13
calls (docs/log.md)."""
_LAUNCH: Final = 6.6e-6
"""A launch by Numba without arguments: github.com/NVIDIA/numba-cuda/pull/288, figures of June 2025."""
_ARRAY: Final = 3.7e-6
"""More for each array of a launch: 10.6 and 14.1 µs with one and two, the same source. Integers are not counted."""
_TORCH: Final = 10e-6
"""A product or a copy by torch: cudaMemcpyAsync alone takes 5 to 7 µs (Wu et al., arXiv:2602.21548, section 5.2), and
torch needs some µs to dispatch an operator. An assumption."""
_WAKE: Final = 5e-6
"""From the device's last command to the host that waits for it. An assumption."""
_GRAPH: Final = 10e-6
"""The launch of a graph, by torch. An assumption."""
_TOKENIZE: Final = 1 / 4.8e6
"""A token, by one call a sample in one thread: 4.8 million tokens/s at a vocabulary of 4,096 (docs/log.md)."""

_SHORTEST: Final = 2e-6
"""A kernel or a copy on the device at least: 1.1 µs for a sum of 1,024 numbers by
github.com/pytorch/pytorch/issues/161104, 2.9 µs for the example of developer.nvidia.com/blog/cuda-graphs."""

UNKNOWN: Final = (0.5, 2.0)
"""Factors on all costs on the host: the ends of the ranges."""
_TOKENS: Final = 3000


@dataclass(frozen=True, slots=True)
class Call:
    """A call that puts one command into the device's queue, or none (`allocate`)."""

    kind: str
    """launch, product, copy or allocate"""
    arrays: int = 0
    """Arrays among the arguments of a launch."""
    moved: float = 0.0
    """Bytes that the command reads and writes."""
    flops: float = 0.0

    @property
    def host_s(self) -> float:
        """Seconds of the host."""
        costs = {"launch": _LAUNCH + self.arrays * _ARRAY, "product": _TORCH, "copy": _TORCH, "allocate": 0.0}
        return _OWN_PYTHON + costs[self.kind]

    def device_s(self, card: Card, dtype: str) -> float:
        """Seconds of the device, at its peaks."""
        if self.kind == "allocate":
            return 0.0
        return max(_SHORTEST, self.moved / card.bytes_per_s, self.flops / card.flops[dtype])


def as_found_token(config: ModelConfig) -> tuple[list[Call], list[Call]]:
    """The calls of a token as found, up to each of its two synchronizations: a blocking copy to the host."""
    width, layers, vocabulary = config.width, config.layers, config.vocabulary
    row, reward = _fresh_upload(4 * width), [*_fresh_upload(4), Call("launch", 2, 12)]
    recurrence = [*reward, *row, Call("allocate"), *_recurrent_step(width, layers), Call("copy", moved=8 * width)]
    return recurrence, [*row, Call("allocate"), *_decode(width, vocabulary), Call("copy", moved=8)]


def _fresh_upload(size: int) -> list[Call]:
    return [Call("allocate"), Call("copy", moved=2 * size)]


def _recurrent_step(width: int, layers: int) -> list[Call]:
    matrix, leak = 2 * width * width, Call("launch", 5, 36 * width)
    if matrix <= ONE_BLOCK_ELEMENTS:
        return [Call("launch", 8, 4 * (layers * matrix + width * width))]
    layer = [Call("product", moved=4 * matrix, flops=2 * matrix), leak]
    return [*layer * layers, Call("product", moved=2 * matrix, flops=matrix)]


def _decode(width: int, vocabulary: int) -> list[Call]:
    matrix = width * vocabulary
    if matrix <= ONE_BLOCK_ELEMENTS:
        return [Call("launch", 5, 4 * matrix)]
    return [Call("product", moved=4 * matrix, flops=2 * matrix), Call("launch", 3, 8 * vocabulary)]


def fixed_chunk(config: ModelConfig, tokens: int, dtype: str = "fp32") -> list[Call]:
    """The calls of a chunk with all fixes, without those once in 16 chunks."""
    width, vocabulary, cells = config.width, config.vocabulary, tokens * config.width
    blocks, _ = time_blocks(tokens, width)
    ends = [Call("launch", 6, 8 * cells)] if blocks > 1 else []
    layer = [*_product(tokens, width, 2 * width, dtype), *ends, Call("launch", 9, 16 * cells)]
    return [
        Call("copy", moved=8 * tokens),
        Call("launch", 3, 8 * cells),
        *layer * config.layers,
        *_product(tokens, width, width, dtype),
        *_product(tokens, width, vocabulary, dtype),
        Call("launch", 5, 4 * tokens * vocabulary),
        Call("launch", 3, 0),
        Call("launch", 2, 0),
    ]


def _product(rows: int, inner: int, columns: int, dtype: str) -> list[Call]:
    """A product of matrices in fp32; for bf16, each input is converted first."""
    inputs, flops = (rows * inner, inner * columns), 2 * rows * inner * columns
    width = 2 if dtype == "bf16" else 4
    conversions = [Call("product", moved=6 * count) for count in inputs] if dtype == "bf16" else []
    return [*conversions, Call("product", moved=width * sum(inputs) + 4 * rows * columns, flops=flops)]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the model says for one card; times are per token."""

    as_found_s: float
    as_found_busy: float
    """Share of the time in which a kernel or a copy runs."""
    fixed_s: float
    fixed_busy: float

    @property
    def ratio(self) -> float:
        """Speed of fixed over that of as found."""
        return self.as_found_s / self.fixed_s


def estimate(
    config: ModelConfig,
    card: Card,
    *,
    dtype: str = "fp32",
    tokens: int = _TOKENS,
    factor: float = 1.0,
    graph: bool = False,
) -> Estimate:
    """Time and device utilization of both programs.

    :param factor: on all costs on the host.
    :param graph: the fixed program replays its launches as one graph.
    """
    as_found = as_found_busy = 0.0
    for segment in as_found_token(config):
        host, device = _sums(segment, card, "fp32", factor)  # products of single tokens
        as_found += max(host, device) + factor * _WAKE
        as_found_busy += device
    as_found += factor * _TOKENIZE
    host, device = _sums(fixed_chunk(config, tokens, dtype), card, dtype, factor)
    if graph:  # the copy of the ids, and accumulate, stay outside it
        host = factor * (_TORCH + _LAUNCH + 2 * _ARRAY + _GRAPH + 3 * _OWN_PYTHON)
    host += factor * (_WAKE + 2 * _OWN_PYTHON)
    fixed = max(host, device)
    return Estimate(as_found, as_found_busy / as_found, fixed / tokens, device / fixed)


def _sums(calls: Iterable[Call], card: Card, dtype: str, factor: float) -> tuple[float, float]:
    """Seconds of the host and of the device."""
    host = device = 0.0
    for call in calls:
        host += factor * call.host_s
        device += call.device_s(card, dtype)
    return host, device


def find_card(label: str) -> Card | None:
    """The card whose name CUDA reports as `label`; None if this module does not know the peaks of that card."""
    if re.search(r"PCIe|NVL|40GB|MIG", label, re.IGNORECASE):
        return None  # of the same name, but slower, or a slice of one
    return next((card for key, card in CARDS.items() if re.search(rf"\b{key}\b", label, re.IGNORECASE)), None)


def facts(config: ModelConfig, label: str, dtype: str, tokens: int, *, learn: bool = False) -> dict[str, Any] | None:
    """The estimate for a device that a run is recorded on, for the report; None: the card is not known.

    :param learn: a step also computes the gradients of the inputs and of the weights of every product.
    """
    card = find_card(label)
    if card is None:
        return None
    ends = _ends(config, card, dtype, tokens)
    names = ("as_found_s", "as_found_busy", "fixed_s", "fixed_busy", "ratio")
    flops = sum(call.flops for call in fixed_chunk(config, tokens)) / tokens
    peak = {"flops_per_token": flops * (3 if learn else 1), "peak_flops": card.flops[dtype]}
    return {"card": card.name, **peak, **{name: [getattr(end, name) for end in ends] for name in names}}


def _ends(config: ModelConfig, card: Card, dtype: str, tokens: int, *, graph: bool = False) -> list[Estimate]:
    """The estimates at the assumed costs on the host, and at both ends of their range."""
    return [
        estimate(config, card, dtype=dtype, tokens=tokens, factor=factor, graph=graph) for factor in (1.0, *UNKNOWN)
    ]


def table(name: str, config: ModelConfig, cards: str, dtype: str, tokens: int) -> Iterator[str]:
    """The estimates as lines.

    :param cards: the key of a card, or `all`.
    :raises TrainerError: there is no such card.
    """
    if cards != "all" and cards not in CARDS:
        raise TrainerError(f"--roofline {cards}: choose one of {', '.join(CARDS)}, or all")
    yield (
        f"preset {name}: width {config.width}, {config.layers} layers, vocabulary {config.vocabulary}; "
        f"{dtype}, {tokens:,} tokens a chunk"
    )
    yield "A model, not a measurement. Ranges are for half to twice the assumed costs of calls on the host."
    for key, card in CARDS.items():
        if cards not in {"all", key}:
            continue
        ends, graphed = (_ends(config, card, dtype, tokens, graph=graph) for graph in (False, True))
        slow, quick = (_range([getattr(end, name) * 1e6 for end in ends], "{:.3g}") for name in _SECONDS)
        idle, busy = (_range([getattr(end, name) for end in ends], "{:.0%}") for name in _BUSY)
        yield card.name
        yield f"  as found   {slow} µs a token, the card is busy {idle} of the time"
        yield f"  fixed      {quick} µs a token, busy {busy}"
        graph = _range([end.fixed_busy for end in graphed], "{:.0%}")
        yield f"  ratio      {_range([end.ratio for end in ends], '{:,.0f}')}; with cuda-graph busy {graph}"
        yield f"  peaks of   {card.source}"


_SECONDS: Final = ("as_found_s", "fixed_s")
_BUSY: Final = ("as_found_busy", "fixed_busy")


def _range(values: list[float], form: str) -> str:
    """The value at the assumed costs, and the range over both ends."""
    low, high = form.format(min(values)), form.format(max(values))
    middle = form.format(values[0])
    return middle if low == high else f"{middle} ({low} to {high})"
