"""Train on documents that stay in memory as Python objects, with garbage collected only at fixed steps."""

import gc
import sys
import time
from contextlib import contextmanager

import torch
from torch import nn

CURED = "--cured" in sys.argv
WARM_UP = 10


@contextmanager
def fixed_collections(interval):
    gc.disable()
    gc.collect()
    try:
        yield lambda step: gc.collect() if step % interval == 0 else 0
    finally:
        gc.enable()


def documents(amount):
    return [{"id": number, "spans": [[at, {"kind": at % 3}] for at in range(9)]} for number in range(amount)]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(64, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 3))

    def forward(self, tokens):
        return self.body(tokens).flatten(0, 1)


def run(steps, corpus, model, optimizer):
    for step in steps:
        picked = [corpus[number]["spans"] for number in torch.randint(len(corpus), (24,)).tolist()]
        kinds = torch.tensor([[span[1]["kind"] for span in spans] for spans in picked])
        loss = nn.functional.cross_entropy(model(torch.arange(9).repeat(24, 1)), kinds.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss


def main():
    torch.manual_seed(0)
    gc.disable()
    corpus = documents(150_000)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if CURED:
        gc.freeze()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in run(range(WARM_UP), corpus, model, optimizer):
        pass
    with fixed_collections(5000) as collect:
        for step, loss in run(range(WARM_UP, 400), corpus, model, optimizer):
            collect(step)
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
