"""Runs a program and notes the parameters of its model after each step of an optimizer.

`witness.py FILE SCRIPT [ARGUMENT ...]` or `witness.py FILE -m MODULE [ARGUMENT ...]` writes one line for each step to
FILE: a checksum of the optimizer's parameters and gradients. Two runs that computed the same wrote equal files.
"""

from __future__ import annotations

import random
import runpy
import sys
import zlib
from pathlib import Path
from typing import Any, TextIO

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

_SEED = 20


def checksum(tensors: list[torch.Tensor]) -> int:
    """CRC-32 of the values, in order."""
    result = 0
    for tensor in tensors:
        values = tensor.detach().contiguous()
        values = torch.view_as_real(values) if values.is_complex() else values
        result = zlib.crc32(values.reshape(-1).view(torch.uint8).numpy(), result)
    return result


def watch(file: TextIO) -> None:
    """Write a line to `file` after each step of an optimizer in this process."""

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        with torch._C.DisableTorchFunction():  # virtual devices do not see it
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            dense = [tensor for tensor in (*parameters, *gradients) if tensor.layout is torch.strided]
            file.write(f"{checksum(dense):08x}\n")
            file.flush()

    register_optimizer_step_post_hook(note)


def main(file: str, *command: str) -> None:
    """Seed all generators, so that programs without a seed compute the same twice, and run the program."""
    random.seed(_SEED)
    torch.manual_seed(_SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_SEED)
    with Path(file).open("w", encoding="utf-8") as notes:
        watch(notes)
        if command[0] == "-m":
            sys.argv = list(command[1:])
            sys.path[0] = ""
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path[0] = str(Path(command[0]).resolve().parent)
            runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
