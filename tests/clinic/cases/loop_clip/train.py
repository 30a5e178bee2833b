"""Train sparse autoencoders on the activations of all layers of a frozen net."""

import sys
import time

import loopwright
import torch
from torch import nn


class Sparse(nn.Module):
    """One dictionary of features for a layer."""

    def __init__(self, width, features):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(width, features), nn.Linear(features, width)

    def forward(self, activations):
        found = self.encoder(activations).relu()
        return (self.decoder(found) - activations).square().mean() + 1e-3 * found.abs().mean()


class Dictionaries(nn.Module):
    def __init__(self, layers=6, width=192, features=1536):
        super().__init__()
        self.frozen = nn.ModuleList(nn.Linear(width, width) for _ in range(layers)).requires_grad_(False)
        self.parts = nn.ModuleList(Sparse(width, features) for _ in range(layers))

    def forward(self, inputs):
        loss = 0.0
        for layer, part in zip(self.frozen, self.parts):
            inputs = torch.tanh(layer(inputs)) + inputs
            loss = loss + part(inputs)
        return loss


torch.manual_seed(10)
model = Dictionaries()
optimizer = torch.optim.SGD(model.parts.parameters(), lr=0.05)
loop = loopwright.Loop(model, optimizer, clip=1.0, clip_steps=12 if "--cured" in sys.argv else None)
begin, cpu = time.perf_counter(), time.process_time()
last = loop.run(torch.randn(2, 192) for _ in range(80))
print(f"loss {last:.4f}, norm {loop.norms[-1]:.3f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
