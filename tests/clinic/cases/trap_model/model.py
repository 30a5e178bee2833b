"""A residual network whose illnesses lie in the model, in torch.compile and in the memory.

`--ill` makes it ill, `--cured` has the same work without the illness; without either it is healthy.
"""

import argparse
import time

import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH = 256, 64


class Block(nn.Module):
    def __init__(self, watches):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.watches = watches

    def forward(self, x):
        y = self.narrow(nn.functional.gelu(self.wide(self.norm(x))))
        if self.watches:
            largest = y.abs().max().item()  # ill: graph-breaks
            if largest > 1e6:
                y = y / largest
        return x + y


class Network(nn.Module):
    def __init__(self, watches=False, recomputes=False):
        super().__init__()
        self.blocks = nn.ModuleList(Block(watches) for _ in range(4))
        self.head = nn.Linear(WIDTH, 10)
        self.recomputes = recomputes

    def forward(self, x):
        for block in self.blocks:
            if self.recomputes:
                x = checkpoint(block, x, use_reentrant=False)  # ill: activation-checkpoints
            else:
                x = block(x)  # ill: recompilation
        return self.head(x)


class Occlusion:
    """Multiplies its input by a mask that covers each position of a large field with the same probability."""

    def __init__(self, reuses):
        self.field = torch.empty(4096, 4096) if reuses else None

    def __call__(self, x):
        if self.field is None:
            field = torch.zeros(4096, 4096)
        else:
            field = self.field.zero_()
        field[:: 4096 // len(x)][: len(x), :WIDTH] = 1.0
        return x * field[:: 4096 // len(x)][: len(x), :WIDTH]


def prepare():
    """Counts words, as the preparation of a corpus does."""
    counts, end = {}, time.monotonic() + 31
    while time.monotonic() < end:
        for number in range(100_000):
            word = number * number % 9973  # ill: long-startup
            counts[word] = counts.get(word, 0) + 1  # ill: long-startup
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ill", action="append", default=[])
    parser.add_argument("--cured", action="append", default=[])
    arguments = parser.parse_args()
    ill, cases = set(arguments.ill), {*arguments.ill, *arguments.cured}
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "long-startup" in ill:
        prepare()  # ill: long-startup
    network = Network("graph-breaks" in ill, "activation-checkpoints" in ill)
    if "unused-gradients" in cases:
        optimizer = torch.optim.SGD(network.head.parameters(), lr=0.01)  # ill: unused-gradients
        network.blocks.requires_grad_("unused-gradients" in ill)
    else:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    model = network
    if "graph-breaks" in cases:
        model = torch.compile(network, backend="aot_eager")
    if "recompilation" in cases:
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1_000_000
        network.blocks[0] = torch.compile(network.blocks[0], backend="eager", dynamic=False)
    occlude = Occlusion("allocation-churn" not in ill) if "allocation-churn" in cases else None
    history = []
    warm, began = arguments.steps // 5, 0.0
    for step in range(1, arguments.steps + 1):
        if step == warm:
            began, cpu = time.perf_counter(), time.process_time()
        size = 16 + step if "recompilation" in ill else BATCH
        if "memory-creep" in cases:  # slow steps: memory is sampled about once in a second
            size *= 16
        x, labels = torch.randn(size, WIDTH), torch.randint(0, 10, (size,))
        if occlude:
            x = occlude(x)
        loss = nn.functional.cross_entropy(model(x), labels)  # ill: recompilation
        optimizer.zero_grad()
        loss.backward()  # ill: unused-gradients
        optimizer.step()
        if "memory-creep" in cases:
            spread = network(x[:BATCH]).std()
            history.append(spread if "memory-creep" in ill else spread.detach())  # ill: memory-creep
    print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
