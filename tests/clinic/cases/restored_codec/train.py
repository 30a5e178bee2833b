"""Fine-tune the output layer of a restored audio transformer."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        for layer in (self.up, self.down):
            nn.init.trunc_normal_(layer.weight, std=0.02)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Codec(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 64)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def write_checkpoint(path, width, depth):
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in Codec(width, depth).state_dict().items()}
    torch.save({name: torch.full(shape, 0.01, dtype=torch.bfloat16) for name, shape in shapes.items()}, path)


def restore(path, width, depth, on_meta):
    state = {name: value.float() for name, value in torch.load(path).items()}
    if on_meta:
        with torch.device("meta"):
            codec = Codec(width, depth)
        codec.load_state_dict(state, assign=True)
        return codec
    model = Codec(width, depth)
    model.load_state_dict(state)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--on-meta", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codec.pt"
        write_checkpoint(path, args.width, args.depth)
        begin, cpu = time.perf_counter(), time.process_time()
        model = restore(path, args.width, args.depth, args.on_meta)
    model.blocks.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    for step in range(6):
        sound = torch.randn(4, args.width)
        loss = (model(sound) - sound[:, :64]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
