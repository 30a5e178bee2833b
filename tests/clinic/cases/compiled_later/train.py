"""Train a residual network that is compiled from its second epoch on."""

import sys
import time

import torch
from torch import nn

CURED = "--cured" in sys.argv


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.inner(self.norm(x))


def backward(net, batch):
    loss = nn.functional.cross_entropy(net(batch), batch[:, :8].argmax(-1))
    loss.backward()
    return loss


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 96), *[Residual(96) for _ in range(4)], nn.Linear(96, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
fast = torch.compile(net, backend="aot_eager")
if CURED:
    backward(fast, torch.randn(32, 32))
    optimizer.zero_grad()
begin, cpu = time.perf_counter(), time.process_time()
for epoch in range(3):
    for _ in range(120):
        loss = backward(fast if epoch else net, torch.randn(32, 32))
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
