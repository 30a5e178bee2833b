"""Fine-tune the output layer of a restored audio transformer."""

import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        nn.init.trunc_normal_(self.up.weight, std=0.02)
        nn.init.trunc_normal_(self.down.weight, std=0.02)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Codec(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 64)

    def forward(self, x):
        return self.head(self.blocks(x))


def write_checkpoint(path, width, depth):
    with torch.device("meta"):
        state = Codec(width, depth).bfloat16().state_dict()
    torch.save({name: torch.full_like(value, 0.01, device="cpu") for name, value in state.items()}, path)


def restore(path, width, depth):
    state = {name: value.float() for name, value in torch.load(path).items()}
    with torch.device("meta" if "--on-meta" in sys.argv else "cpu"):
        model = Codec(width, depth)
    model.load_state_dict(state, assign=True)
    return model


def main(width=768, depth=16):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codec.pt"
        write_checkpoint(path, width, depth)
        begin, cpu = time.perf_counter(), time.process_time()
        model = restore(path, width, depth)
    model.blocks.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    for _ in range(6):
        sound = torch.randn(4, width)
        loss = (model(sound) - sound[:, :64]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
