"""Train a screening model on fingerprints of molecules for twelve assays."""

import sys
import tempfile
import time

import fitkit
import torch

torch.manual_seed(9)
prints = (torch.rand(4800, 512) < 0.1).float()
answers = ((prints @ torch.randn(512, 12)) > 0).float()
batches = list(zip(prints.split(16), answers.split(16)))
options = {"checkpoint_interval": 300} if "--cured" in sys.argv else {}
with tempfile.TemporaryDirectory() as folder:
    model = fitkit.TaskModel(features=512, tasks=12, folder=folder)
    begin, cpu = time.perf_counter(), time.process_time()
    print(f"loss {model.fit(batches, epochs=2, **options):.4f} after {model.step} steps")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
