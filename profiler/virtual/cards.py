"""Defines the properties of GPUs that a virtual device can show to a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Card:
    """A model of GPU: what `torch.cuda.get_device_properties` tells about it."""

    name: str
    major: int
    """Major number of the compute capability."""
    minor: int
    total_memory: int
    """Bytes."""
    multi_processor_count: int


_GIB: Final = 1 << 30
CARDS: Final = {
    "h100": Card("NVIDIA H100 80GB HBM3", 9, 0, 80 * _GIB, 132),
    "a100": Card("NVIDIA A100-SXM4-40GB", 8, 0, 40 * _GIB, 108),
    "v100": Card("Tesla V100-SXM2-16GB", 7, 0, 16 * _GIB, 80),
    "l4": Card("NVIDIA L4", 8, 9, 24 * _GIB, 58),
    "t4": Card("Tesla T4", 7, 5, 16 * _GIB, 40),
}
"""Name of the option -> card, by NVIDIA's data sheets: memory as sold, streaming multiprocessors."""
