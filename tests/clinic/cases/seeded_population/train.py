"""Fit a controller by an evolution strategy: no gradient is taken."""

import sys
import time

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

TOGETHER = "--together" in sys.argv


class Strategy:
    def __init__(self, model, size, spread, rate):
        self.model, self.size, self.spread, self.rate = model, size, spread, rate
        self.center = parameters_to_vector(model.parameters()).detach()
        self.shapes = {name: value.shape for name, value in model.named_parameters()}

    def unpack(self, vectors):
        parts = vectors.split([shape.numel() for shape in self.shapes.values()], 1)
        return {name: part.view(-1, *shape) for (name, shape), part in zip(self.shapes.items(), parts)}

    def costs(self, vectors, states, wanted):
        if TOGETHER:
            got = vmap(lambda weights: functional_call(self.model, weights, (states,)))(self.unpack(vectors))
            return (got - wanted).square().mean((1, 2))
        costs = []
        for vector in vectors:
            vector_to_parameters(vector, self.model.parameters())
            costs.append((self.model(states) - wanted).square().mean())
        return torch.stack(costs)

    def generation(self, states, wanted):
        noise = torch.randn(self.size // 2, len(self.center))
        noise = torch.cat((noise, -noise))
        costs = self.costs(self.center + self.spread * noise, states, wanted)
        ranks = costs.argsort().argsort().float() / (self.size - 1) - 0.5
        self.center -= self.rate / (self.size * self.spread) * (ranks @ noise)
        return costs.mean().item()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    controller = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))
    strategy = Strategy(controller, size=128, spread=0.05, rate=0.01)
    mixing = torch.randn(6, 2)
    begin, cpu = time.perf_counter(), time.process_time()
    for number in range(100):
        states = torch.randn(32, 6)
        cost = strategy.generation(states, (states @ mixing).tanh())
        if number % 25 == 0:
            print(f"generation {number}: cost {cost:.4f}")
    vector_to_parameters(strategy.center, strategy.model.parameters())
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


main()
