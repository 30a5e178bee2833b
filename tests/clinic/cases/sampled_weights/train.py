"""Train a Bayesian network: each forward pass draws its weights around their means."""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F


class GaussianLinear(nn.Module):
    """A linear layer whose weight and bias are drawn anew for each batch."""

    def __init__(self, inputs, outputs, draws_in_place):
        super().__init__()
        self.draws_in_place = draws_in_place
        self.weight_mean = nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))
        self.weight_rho = nn.Parameter(torch.full((outputs, inputs), -4.0))
        self.bias_mean = nn.Parameter(torch.zeros(outputs))
        self.bias_rho = nn.Parameter(torch.full((outputs,), -4.0))

    def draw(self, mean, rho):
        if self.draws_in_place:
            noise = torch.randn_like(mean)
        else:
            noise = torch.randn(mean.shape).to(mean.device)
        return mean + F.softplus(rho) * noise

    def forward(self, inputs):
        return F.linear(inputs, self.draw(self.weight_mean, self.weight_rho), self.draw(self.bias_mean, self.bias_rho))

    def divergence(self):
        pairs = ((self.weight_mean, self.weight_rho), (self.bias_mean, self.bias_rho))
        return sum((mean.square() + F.softplus(rho) - F.softplus(rho).log()).sum() for mean, rho in pairs)


torch.manual_seed(0)
shapes = ((18, 24), (24, 24), (24, 4))
layers = [GaussianLinear(*shape, "--in-place" in sys.argv) for shape in shapes]
net = nn.Sequential(layers[0], nn.Softplus(), layers[1], nn.Softplus(), layers[2]).to("cuda")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
images = torch.randn(96, 18, device="cuda")
classes = images[:, :4].argmax(-1)
for epoch in range(2):
    for begin in range(0, len(images), 12):
        part = slice(begin, begin + 12)
        loss = F.cross_entropy(net(images[part]), classes[part])
        loss = loss + 1e-4 * sum(layer.divergence() for layer in layers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"epoch {epoch}: loss {loss.item():.4f}")
