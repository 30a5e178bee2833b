"""Train a small decoder on several ranks; each attention layer keeps its causal mask."""

import math
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

CONTEXT, WIDTH, LAYERS, STEPS = 1024, 96, 6, 40


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.full((context, context), -math.inf).triu(1))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in self.mix(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)) + self.mask[:length, :length]
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    def __init__(self, width, context):
        super().__init__()
        self.attention = Attention(width, 4, context)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Decoder(nn.Module):
    def __init__(self, symbols=64):
        super().__init__()
        self.embed = nn.Embedding(symbols, WIDTH)
        self.place = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*(Block(WIDTH, CONTEXT) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, symbols)

    def forward(self, text):
        return self.head(self.blocks(self.embed(text) + self.place[: text.size(1)]))


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(Decoder(), broadcast_buffers="--keep-buffers" not in sys.argv)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
text = torch.randint(64, (20_000,))
begin, cpu = time.perf_counter(), time.process_time()
for step in range(STEPS):
    starts = torch.randint(len(text) - 129, (2,)).tolist()
    batch = torch.stack([text[start : start + 129] for start in starts])
    loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
dist.destroy_process_group()
