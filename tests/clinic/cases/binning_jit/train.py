"""Learn from a table whose columns are cut into bins; the bins are found anew after the first part."""

import sys
import time

import numpy as np
import torch
from numba import njit
from torch import nn

CURED = "--cured" in sys.argv
BINS = 32


@njit
def binned(table, edges):
    codes = np.zeros(table.shape, np.int64)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            low, high = 0, edges.shape[0]
            while low < high:
                middle = (low + high) // 2
                if edges[middle, column] < table[row, column]:
                    low = middle + 1
                else:
                    high = middle
            codes[row, column] = low
    return codes


torch.manual_seed(0)
table = np.random.default_rng(0).gamma(2.0, size=(4000, 12))
aim = torch.from_numpy(np.log(table).sum(1)).float()
codes = torch.from_numpy((table * BINS / (table.max() + 1)).astype(np.int64))
edges = np.quantile(table, np.arange(1, BINS) / BINS, axis=0)
embed = nn.EmbeddingBag(12 * BINS, 64)
head = nn.Sequential(nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters()], lr=2e-3)
if CURED:
    binned(table[:8], edges)
begin, cpu = time.perf_counter(), time.process_time()
for step in range(600):
    if step == 200:
        codes = torch.from_numpy(binned(table, edges))
    rows = torch.randint(4000, (128,))
    guess = head(embed(codes[rows] + BINS * torch.arange(12)))[:, 0]
    loss = nn.functional.mse_loss(guess, aim[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
