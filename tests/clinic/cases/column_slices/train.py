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


def make_table(rows):
    values = torch.randn(rows, sum(WIDTHS))
    offset = torch.tensor([0, *WIDTHS]).cumsum(0)
    return Ragged(values, offset), values[:, ::3].sum(-1)


@torch.no_grad()
def error(model, table, wanted):
    model.eval()
    result = (model(table) - wanted).abs().mean()
    model.train()
    return result.item()


torch.manual_seed(0)
table, wanted = make_table(80)
table, wanted = table.to("cuda"), wanted.to("cuda")
model = TableModel().to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(3):
    for begin in range(0, 80, 10):
        part = slice(begin, begin + 10)
        loss = nn.functional.mse_loss(model(table.rows(part)), wanted[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"mean error {error(model, table, wanted):.4f}")
