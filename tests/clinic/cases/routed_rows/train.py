"""Train grouped linear layers: rows are sorted by their lane, and each lane adds a bias and a gain of its own."""

import sys

import torch
from lanes import LanePlan
from torch import nn

LANES, WIDTH = 6, 20


class LaneLayer(nn.Module):
    def __init__(self, hands_size):
        super().__init__()
        self.plan, self.hands_size = LanePlan(LANES), hands_size
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.router = nn.Linear(WIDTH, LANES)
        self.bias = nn.Parameter(torch.zeros(LANES, WIDTH))
        self.gain = nn.Parameter(torch.ones(LANES, WIDTH))

    def forward(self, rows):
        choice = self.router(rows).argmax(-1)
        counts = self.plan.occupancy(choice)
        order = choice.argsort(stable=True)
        size = choice.shape[0] if self.hands_size else None
        mixed = self.shared(rows[order])
        mixed = mixed * self.plan.spread(self.gain, counts, size) + self.plan.spread(self.bias, counts, size)
        return rows + torch.zeros_like(rows).index_copy(0, order, torch.tanh(mixed))


def fit(steps, hands_size):
    torch.manual_seed(0)
    net = nn.Sequential(*(LaneLayer(hands_size) for _ in range(3)), nn.Linear(WIDTH, 1)).to("cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    total = torch.zeros((), device="cuda")
    for _ in range(steps):
        rows = torch.randn(48, WIDTH, device="cuda")
        loss = (net(rows).squeeze(-1) - rows.square().mean(-1)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / steps


if __name__ == "__main__":
    print(f"mean loss {fit(18, '--hand-size' in sys.argv):.4f}")
