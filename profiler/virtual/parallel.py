"""Copies between virtual devices for torch.nn.DataParallel: the functions of torch._C that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def _on(tensor: Tensor, device: int) -> Tensor:
    return tensor.to(torch.device("cuda", device), non_blocking=True) if device >= 0 else tensor.cpu()


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """A copy on each device."""
    return [_on(tensor, device) for device in devices]


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], _: int = 0) -> list[list[Tensor]]:
    """For each device, copies of all tensors."""
    return [[_on(tensor, device) for tensor in tensors] for device in devices]


def scatter(
    tensor: Tensor, devices: Sequence[int], sizes: Sequence[int] | None = None, dim: int = 0, _: Any = None
) -> list[Tensor]:
    """Parts of a tensor, one on each device."""
    parts = torch.chunk(tensor, len(devices), dim) if sizes is None else torch.split(tensor, list(sizes), dim)
    return [_on(part, device) for part, device in zip(parts, devices, strict=False)]


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: int | None = None) -> Tensor:
    """The tensors on one device, joined."""
    device = 0 if destination is None else destination
    return torch.cat([_on(tensor, device) for tensor in tensors], dim)


REPLACEMENTS = {
    "_broadcast": broadcast,
    "_broadcast_coalesced": broadcast_coalesced,
    "_scatter": scatter,
    "_gather": gather,
}
"""Names in torch._C."""
