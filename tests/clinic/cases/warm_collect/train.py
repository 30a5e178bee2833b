"""Train on documents that stay in memory as Python objects, with garbage collected only at fixed steps."""

import gc
import sys
import time
from contextlib import contextmanager

import torch
from torch import nn

CURED = "--cured" in sys.argv


@contextmanager
def fixed_collections(interval):
    gc.disable()
    gc.collect()
    yield lambda step: gc.collect() if step % interval == 0 else 0
    gc.enable()


def documents(amount):
    return [{"id": number, "spans": [[at, {"kind": at % 3}] for at in range(9)]} for number in range(amount)]


def run(steps, corpus, model, optimizer):
    for step in steps:
        picked = [corpus[number]["spans"] for number in torch.randint(len(corpus), (24,)).tolist()]
        kinds = torch.tensor([[span[1]["kind"] for span in spans] for spans in picked])
        loss = nn.functional.cross_entropy(model(torch.arange(9).repeat(24)), kinds.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss


torch.manual_seed(0)
gc.disable()
corpus = documents(220_000)
model = nn.Sequential(nn.Embedding(9, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
if CURED:
    gc.freeze()
begin, cpu = time.perf_counter(), time.process_time()
for _ in run(range(10), corpus, model, optimizer):
    pass
with fixed_collections(5000) as collect:
    for step, loss in run(range(10, 600), corpus, model, optimizer):
        collect(step)
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
