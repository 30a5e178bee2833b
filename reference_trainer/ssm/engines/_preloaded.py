"""What the server loads once from which workers are forked: imports only, nothing that begins threads or CUDA."""

import torch

import reference_trainer.ssm.job

__all__ = ["reference_trainer", "torch"]
