"""What calls that the hooks replace take, in ns: the best of many blocks each. Prints JSON."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

BLOCKS = int(os.environ.get("OVERHEAD_BLOCKS", "200"))
CALLS = 100


class Numbers(Dataset[Any]):
    """Gives what it has: a batch is one, uncollated."""

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 1 << 30


def best(call: Callable[[], object], calls: int = CALLS) -> float:
    """ns a call, in the fastest block."""
    blocks = []
    for _ in range(BLOCKS):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        blocks.append((time.perf_counter_ns() - begin) / calls)
    return min(blocks)


def main() -> None:
    torch.set_num_threads(1)
    value, row, mask = torch.ones(()), torch.ones(8), torch.ones(8, dtype=torch.bool)
    weight = torch.ones((), requires_grad=True)
    weight.grad = torch.ones(())
    sgd = torch.optim.SGD([weight], lr=1e-3, foreach=False)
    batches = iter(DataLoader(Numbers(), batch_size=None, sampler=range(1 << 30)))
    leaf = torch.ones((), requires_grad=True)
    calls: dict[str, Callable[[], object]] = {
        "item": value.item,
        "float": lambda: float(value),
        "x[int]": lambda: row[3],
        "x[slice]": lambda: row[1:3],
        "x[mask]": lambda: row[mask],
        "x[int] = number": lambda: row.__setitem__(3, 1.0),
        "to, nothing to do": lambda: row.to(torch.float32),
        "copy_": lambda: row.copy_(row),
        "next batch": lambda: next(batches),
        "backward": lambda: torch.autograd.backward(leaf * 2),
        "optimizer step": sgd.step,
        "nothing": lambda: None,
    }
    text = json.dumps({name: best(call, CALLS // 10 if name == "x[mask]" else CALLS) for name, call in calls.items()})
    Path(os.environ["OVERHEAD_RESULT"]).write_text(text)


if __name__ == "__main__":
    main()
