"""Train a world model: frames of tokens, rotary positions in time and space, attention to past frames."""

import time

import torch
from torch import nn

FRAMES, TOKENS, HEADS, SIZE = 12, 16, 4, 16


def rotation():
    """Cosines and sines for the frame, the row and the column of each token."""
    tables = []
    for frame in range(FRAMES):
        for token in range(TOKENS):
            where = torch.tensor([frame, token // 4, token % 4], dtype=torch.float32)
            rates = 100.0 ** (-torch.arange(SIZE // 2) * 2 / SIZE)
            tables.append(where.repeat(3)[: SIZE // 2] * rates)
    angles = torch.stack(tables)
    return angles.cos(), angles.sin()


def past_only():
    """Tokens see their own frame and the three before it."""
    mask = torch.zeros(FRAMES * TOKENS, FRAMES * TOKENS, dtype=torch.bool)
    for frame in range(FRAMES):
        rows = slice(frame * TOKENS, (frame + 1) * TOKENS)
        mask[rows, max(0, frame - 3) * TOKENS : rows.stop] = True
    return mask


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(HEADS * SIZE, 3 * HEADS * SIZE), nn.Linear(HEADS * SIZE, HEADS * SIZE)

    def forward(self, tokens):
        (cos, sin), mask = rotation(), past_only()
        q, k, v = self.qkv(tokens).unflatten(-1, (3, HEADS, SIZE)).permute(2, 0, 3, 1, 4)
        q, k = (torch.cat([a * cos - b * sin, a * sin + b * cos], -1) for a, b in (q.chunk(2, -1), k.chunk(2, -1)))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, width=HEADS * SIZE):
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, tokens):
        tokens = tokens + self.attention(self.norm(tokens))
        return tokens + self.mlp(self.norm(tokens))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(60):
        video = torch.randn(2, FRAMES * TOKENS, HEADS * SIZE).cumsum(1) / 8
        loss = nn.functional.mse_loss(model(video)[:, :-TOKENS], video[:, TOKENS:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
