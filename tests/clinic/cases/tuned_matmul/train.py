"""Train experts whose second layer joins after a warm-up of the first."""

import sys
import time

import torch
from groupmm import grouped
from torch import nn

EXPERTS, ROWS, WIDTH = 4, 128, 256


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(EXPERTS, 64, WIDTH) / 8)
        self.down = nn.Parameter(torch.randn(EXPERTS, WIDTH, 64) / 16)

    def forward(self, tokens, joined):
        hidden = torch.bmm(tokens, self.gate)
        return grouped(torch.relu(hidden), self.down) if joined else hidden[..., :64]


torch.manual_seed(0)
model = Experts()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
if "--cured" in sys.argv:
    with torch.no_grad():
        grouped(torch.randn(EXPERTS, ROWS, WIDTH), model.down)
begin, cpu = time.perf_counter(), time.process_time()
for step in range(300):
    tokens = torch.randn(EXPERTS, ROWS, 64)
    loss = (model(tokens, step >= 40) - tokens.flip(-1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
