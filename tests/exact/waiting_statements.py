"""Statements of training programs, and how often each makes the host wait for the device.

`python -m tests.exact.waiting_statements` prints what virtual devices count for each, as JSON: {name: waits}. It
needs a process that sees no GPU. The numbers here come from the source of torch that profiler/exact/waiting.py names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import nn

_SYNCHRONIZES: Final = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize")
_PAGEABLE: Final = "Pageable"


class Statement(NamedTuple):
    """A statement, and the waits that torch's source tells."""

    run: Callable[[Data], object]
    waits: int


class Data:
    """What the statements work on."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        device = self.device = torch.device("cuda")
        self.host, self.pinned = torch.randn(64, 8), torch.randn(64, 8).pin_memory()
        self.x, self.target = self.host.to(device), torch.zeros(64, 4, device=device)
        self.mask, self.index = self.x > 0, torch.arange(4, device=device)
        self.model = nn.Linear(8, 4).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.loss = self.forward()
        self.loss.backward()  # type: ignore[no-untyped-call]
        self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.event.record()  # type: ignore[no-untyped-call]

    def forward(self) -> torch.Tensor:
        """The loss of a forward pass."""
        return nn.functional.mse_loss(self.model(self.x), self.target)

    def assign(self, index: Any, value: Any) -> None:
        """Set elements of a tensor."""
        self.x[index] = value


STATEMENTS: Final[Mapping[str, Statement]] = {
    "item": Statement(lambda data: data.loss.item(), 1),
    "float": Statement(lambda data: float(data.loss.detach()), 1),
    "int": Statement(lambda data: int(data.index[1]), 1),
    "bool": Statement(lambda data: bool(data.mask.any()), 1),
    "tolist": Statement(lambda data: data.index.tolist(), 1),
    "cpu": Statement(lambda data: data.x.cpu(), 1),
    "numpy": Statement(lambda data: data.loss.detach().cpu().numpy(), 1),
    "to the host": Statement(lambda data: data.x.to("cpu"), 1),
    "copy into pinned memory": Statement(lambda data: data.pinned.copy_(data.x, non_blocking=True), 0),
    "pageable copy": Statement(lambda data: data.host.to(data.device), 1),
    "pageable copy, non_blocking": Statement(lambda data: data.host.to(data.device, non_blocking=True), 1),
    "pinned copy": Statement(lambda data: data.pinned.to(data.device), 1),
    "pinned copy, non_blocking": Statement(lambda data: data.pinned.to(data.device, non_blocking=True), 0),
    "tensor of a list": Statement(lambda data: torch.tensor([1.0, 2.0], device=data.device), 1),
    "mask index": Statement(lambda data: data.x[data.mask], 1),
    "nonzero": Statement(lambda data: data.mask.nonzero(), 1),
    "where": Statement(lambda data: torch.where(data.mask), 1),
    "masked_select": Statement(lambda data: torch.masked_select(data.x, data.mask), 1),
    "assignment to a mask": Statement(lambda data: data.assign(data.mask, 0.0), 0),
    "repeat_interleave": Statement(lambda data: torch.repeat_interleave(data.index, data.index), 2),
    "slice to a tensor": Statement(lambda data: data.x[: data.index[1]], 1),
    "equal": Statement(lambda data: torch.equal(data.x, data.x.clone()), 1),
    "device synchronize": Statement(lambda _: torch.cuda.synchronize(), 1),
    "stream synchronize": Statement(lambda _: torch.cuda.current_stream().synchronize(), 1),
    "event synchronize": Statement(lambda data: data.event.synchronize(), 1),
    "index by a tensor": Statement(lambda data: data.x[data.index], 0),
    "assignment to a row": Statement(lambda data: data.assign(0, 1.0), 0),
    "arithmetic": Statement(lambda data: (data.x * 2.0 + 1.0).clamp(min=0.5).sum(), 0),
    "zeros": Statement(lambda data: torch.zeros(8, device=data.device), 0),
    "forward": Statement(lambda data: data.forward(), 0),
    "backward": Statement(lambda data: data.forward().backward(), 0),  # type: ignore[no-untyped-call]
    "clip_grad_norm_": Statement(lambda data: nn.utils.clip_grad_norm_(data.model.parameters(), 1.0), 0),
    "optimizer step": Statement(lambda data: data.optimizer.step(), 0),
    "zero_grad": Statement(lambda data: data.optimizer.zero_grad(set_to_none=False), 0),
}


def run_annotated() -> None:
    """Execute each statement once in an annotation with its name. Each was executed before, since first calls load
    kernels."""
    data = Data()
    for annotate in (False, True):
        for name, statement in STATEMENTS.items():
            with torch.profiler.record_function(name if annotate else "warm-up"):  # type: ignore[no-untyped-call]
                statement.run(data)


def virtual_waits() -> dict[str, int]:
    """The waits of each statement on a virtual device."""
    from profiler.exact import virtual_cuda

    waits = {}
    with virtual_cuda() as counts:
        data = Data()
        for name, statement in STATEMENTS.items():
            counts.clear()
            statement.run(data)
            waits[name] = counts.syncs
    return waits


def traced_waits(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The waits within each annotation of a trace of torch's profiler.

    A call of the runtime that synchronizes waits. So does a copy of pageable memory: `cudaMemcpyAsync` returns when the
    memory was staged (CUDA Runtime API, "API synchronization behavior"). torch synchronizes after a copy that blocks.
    """
    events = [event for event in events if event.get("ph") == "X"]
    copies = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") == "gpu_memcpy" and _PAGEABLE in event["name"]
    }
    waits = {}
    for span in events:
        if span.get("cat") != "user_annotation" or span["name"] not in STATEMENTS:
            continue
        calls = [
            event
            for event in events
            if event.get("cat") in ("cuda_runtime", "cuda_driver")
            and event["tid"] == span["tid"]
            and span["ts"] <= event["ts"] <= span["ts"] + span["dur"]
        ]
        synchronizes = sum(event["name"] in _SYNCHRONIZES for event in calls)
        pageable = sum(event.get("args", {}).get("correlation") in copies for event in calls)
        waits[span["name"]] = max(synchronizes, pageable)
    return waits


if __name__ == "__main__":
    json.dump(virtual_waits(), sys.stdout)
