"""Train a language model's block reproducibly."""

import os
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F


def make_reproducible(seed, keeps_fill):
    """The same seeds and the same order of sums in each run."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    if not keeps_fill:
        torch.utils.deterministic.fill_uninitialized_memory = False


class PackedAttention(nn.Module):
    """Attention whose queries, keys and values are written into one buffer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden):
        batch, length, width = hidden.shape
        packed = torch.empty(3, batch, self.heads, length, width // self.heads, device=hidden.device)
        packed.copy_(self.project(hidden).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4))
        query, key, value = packed.unbind(0)
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first, self.attention = nn.LayerNorm(width), PackedAttention(width, 4)
        self.second = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, hidden):
        hidden = hidden + self.attention(self.first(hidden))
        return hidden + self.narrow(F.gelu(self.wide(self.second(hidden))))


if __name__ == "__main__":
    make_reproducible(7, keeps_fill="--no-fill" not in sys.argv)
    model = nn.Sequential(Block(), Block(), nn.Linear(32, 32)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(12):
        tokens = torch.randn(2, 16, 32, device="cuda")
        loss = F.mse_loss(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
