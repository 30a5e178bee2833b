"""Virtual devices and traces of real GPUs agree on the kinds of copies and waits in a step of the same program.

The traces are others' and lie beside the project: PROFILER_TRACES says where. Skipped where they are not. The facts of
a trace are those that an independent script found in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from profiler.exact import virtual_cuda
from profiler.exact.model import EventKind
from tests.run.ingest.test_real_traces import TRACES

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU"),
    pytest.mark.skipif(not TRACES.exists(), reason=f"there are no recorded traces in {TRACES}"),
]

Step = Callable[[], None]
KINDS = {
    "Memcpy HtoD (Pageable -> Device)": (EventKind.HOST_TO_DEVICE, False),
    "Memcpy HtoD (Pinned -> Device)": (EventKind.HOST_TO_DEVICE, True),
    "Memcpy DtoH (Device -> Pageable)": (EventKind.DEVICE_TO_HOST, False),
    "Memcpy DtoH (Device -> Pinned)": (EventKind.DEVICE_TO_HOST, True),
}


def image_classifier() -> Step:
    """The loop of the tutorial on torch.profiler with TensorBoard: 32 images of 224 x 224 in a batch, not pinned.

    A small network takes the place of its ResNet-50, which copies nothing and never waits.
    """
    device = torch.device("cuda:0")
    model = nn.Sequential(
        nn.Conv2d(3, 4, 7, 16), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 10)
    )
    model.cuda(device)
    criterion = nn.CrossEntropyLoss().cuda(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    data = torch.rand(32, 3, 224, 224), torch.randint(0, 10, (32,))

    def step() -> None:
        inputs, labels = data[0].to(device=device), data[1].to(device=device)
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def both_copies(*, pinned: bool) -> Step:
    """The copies of a batch of 256 images in the trace: to the host, back to the device, and a wait for both."""
    on_device = torch.empty(256, 3, 224, 224, device="cuda")
    on_host = torch.empty(256, 3, 224, 224, pin_memory=pinned)

    def step() -> None:
        on_host.copy_(on_device, non_blocking=True)
        on_device.copy_(on_host, non_blocking=True)
        torch.cuda.synchronize()

    return step


def alexnet_to_device() -> Step:
    """Move an AlexNet, as torchvision has it, to the device."""
    convolutions = ((3, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3))
    model = nn.Sequential(*(nn.Conv2d(*each) for each in convolutions))
    model.extend((nn.Linear(256 * 6 * 6, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)))
    return lambda: model.to("cuda") and None


@pytest.mark.parametrize(
    ("trace", "prepare", "steps", "synchronized"),
    [
        ("kineto_resnet50_nw0_v100", image_classifier, 6, 0),
        ("kineto_resnet50_nw4_v100", image_classifier, 6, 0),
        ("kineto_resnet50_nw4_2021a_v100", image_classifier, 6, 0),
        ("kineto_resnet50_nw4_barelist_v100", image_classifier, 6, 0),
        ("torchbench_copy_pageable_a100", lambda: both_copies(pinned=False), 10, 10),
        ("torchbench_copy_pinned_a100", lambda: both_copies(pinned=True), 10, 10),
        ("hta_alexnet_a100", alexnet_to_device, 1, 0),
    ],
)
def test_copies_and_waits_of_a_step_are_those_of_the_trace(
    trace: str, prepare: Callable[[], Step], steps: int, synchronized: int
) -> None:
    truth: dict[str, Any] = json.loads((TRACES / "truth" / f"{trace}.json").read_text(encoding="utf-8"))
    with virtual_cuda() as counts:
        step = prepare()
        counts.clear()
        for _ in range(steps):
            step()
    copied: dict[tuple[EventKind, bool], tuple[int, int]] = {}
    for (event, _), number in counts.events.items():
        if event.kind in (EventKind.HOST_TO_DEVICE, EventKind.DEVICE_TO_HOST):
            before = copied.get((event.kind, event.pinned), (0, 0))
            copied[event.kind, event.pinned] = before[0] + number, before[1] + number * event.size
    recorded = {KINDS[name]: (copy["count"], copy["bytes"]) for name, copy in truth["memcpy"].items()}
    assert copied == recorded
    waits = Counter(event.name == "synchronize" for event, _ in counts.events.elements() if event.waits)
    recorded_waits = {name: each["count"] for name, each in truth["sync"].items()}
    assert waits[False] == recorded_waits.get("cudaStreamSynchronize", 0)  # copies that wait
    assert waits[True] == synchronized
    # torch's profiler synchronizes once at its end, and the benchmark of AlexNet around each measurement
    others = recorded_waits.get("cudaDeviceSynchronize", 0) - synchronized
    assert others in ((5,) if prepare is alexnet_to_device else (0, 1))
