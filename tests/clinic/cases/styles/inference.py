"""Inference only: no optimizer, a loader and a model."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batches = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
loader = DataLoader(TensorDataset(torch.randn(batches * 8, 32, 64)), batch_size=8)
total = 0.0
with torch.inference_mode():
    for (batch,) in loader:
        total += model(batch).mean().item()
print(f"mean {total / batches:.6f}")
