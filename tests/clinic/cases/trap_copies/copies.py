"""A training that keeps a copy of its model, as for a target network, and what it has seen."""

import argparse
import copy
import time

import numpy as np
import torch
from torch import nn

ILLNESSES = ["deep-copies", "repeated-concatenation"]
parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[], choices=ILLNESSES)
parser.add_argument("--cured", action="append", default=[], choices=ILLNESSES)
parser.add_argument("--steps", type=int, default=1200)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
rows = torch.randn(4096, 128)
net = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
target = copy.deepcopy(net)
seen = np.zeros((16_384, 128), np.float32)
warm, begin = args.steps // 5, 0.0
for step in range(1, args.steps + 1):
    inputs = rows[torch.randint(0, 4096, (32,))]
    with torch.no_grad():
        goal = target(inputs).flip(1)
    loss = nn.functional.mse_loss(net(inputs), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if "repeated-concatenation" in args.ill:
        seen = np.concatenate([seen[32:], inputs.numpy()])  # ill: repeated-concatenation
    else:
        seen[32 * step % len(seen) :][:32] = inputs.numpy()
    if "deep-copies" in args.ill or step % 100 == 0:
        target = copy.deepcopy(net)  # ill: deep-copies
    if step == warm:
        begin, cpu = time.perf_counter(), time.process_time()
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
