"""Fit a model to a table with five embedded text columns."""

import sys

import torch
from tabfold import ColumnEncoder, Ragged
from torch import nn

WIDTHS = (6, 4, 9, 5, 8)


class TableModel(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.encoder = ColumnEncoder(WIDTHS, channels, from_widths="--from-widths" in sys.argv)
        self.head = nn.Sequential(nn.LayerNorm(channels), nn.ReLU(), nn.Linear(channels, 1))

    def forward(self, table):
        return self.head(self.encoder(table).mean(dim=1)).squeeze(-1)


torch.manual_seed(0)
values = torch.randn(80, sum(WIDTHS)).to("cuda")
offset = torch.tensor([0, *WIDTHS]).cumsum(0).to("cuda")
wanted = values[:, ::3].sum(-1)
model = TableModel().to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(3):
    for part in (slice(begin, begin + 10) for begin in range(0, 80, 10)):
        loss = nn.functional.mse_loss(model(Ragged(values[part], offset)), wanted[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    print(f"mean error {(model(Ragged(values, offset)) - wanted).abs().mean().item():.4f}")
