"""Fit a network to likelihoods of decision models that were simulated beforehand."""

import argparse
import itertools
import time

import torch
from torch import nn


class Likelihoods:
    """Blocks of simulated trials; each block is cut into batches."""

    def __init__(self, blocks, rows, batch_size):
        generator = torch.Generator().manual_seed(11)
        self.blocks = [torch.rand(rows, 7, generator=generator) for _ in range(blocks)]
        self.batch_size = batch_size

    def __iter__(self):
        for block in self.blocks:
            order = torch.randperm(len(block))
            for rows in order.split(self.batch_size):
                trials = block[rows]
                yield trials, (trials[:, :6].sin().sum(1, keepdim=True) - trials[:, 6:].exp()).clamp(min=-4)


def network(sizes=(7, 100, 100, 100, 1)):
    layers = [[nn.Linear(before, after), nn.Tanh()] for before, after in itertools.pairwise(sizes)]
    return nn.Sequential(*itertools.chain(*layers))[:-1]


class Trainer:
    def __init__(self, model, data, is_summed):
        self.model, self.data, self.is_summed = model, data, is_summed
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.criterion = nn.HuberLoss()

    def step(self, trials, target):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(trials), target)
        loss.backward()
        self.optimizer.step()
        return loss.detach() if self.is_summed else float(loss)

    def fit(self, epochs):
        for epoch in range(epochs):
            total = torch.zeros(()) if self.is_summed else 0.0
            for count, (trials, target) in enumerate(self.data, 1):
                total += self.step(trials, target)
            print(f"epoch {epoch}: mean loss {float(total) / count:.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--summed", action="store_true", help="read the losses once in an epoch")
    options = parser.parse_args()
    torch.manual_seed(0)
    trainer = Trainer(network(), Likelihoods(4, 32768, 4096), options.summed)
    begin, cpu = time.perf_counter(), time.process_time()
    trainer.fit(epochs=4)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
