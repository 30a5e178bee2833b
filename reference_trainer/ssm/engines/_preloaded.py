"""What the server does once from which workers are forked: imports, and a first kernel, which begins no thread.

A worker would need 1.5 s for torch, 0.5 s for Numba and 0.7 s for the types that Numba looks up before its first
kernel, each of them.
"""

from contextlib import suppress

import torch

import reference_trainer.ssm.job

__all__ = ["reference_trainer", "torch"]

with suppress(Exception):  # else there is no server to fork from; a worker meets the same error and reports it
    import reference_trainer.ssm.kernels.scan  # noqa: F401
    from reference_trainer.ssm.draws import INPUTS, Stream, fill_normals

    fill_normals([Stream(0, INPUTS)], torch.empty(1, 1))
