"""Predict speed and pressure at the points of padded meshes around airfoils."""

import copy
import time

import torch
from torch import nn


class SliceAttention(nn.Module):
    """Attention between learned groups of mesh points."""

    def __init__(self, width, groups, heads=4):
        super().__init__()
        self.to_group = nn.Linear(width, groups)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, points):
        share = self.to_group(points).softmax(-1)
        tokens = share.transpose(1, 2) @ points / share.sum(1).unsqueeze(-1)
        mixed, _ = self.mix(tokens, tokens, tokens, need_weights=False)
        return share @ mixed


class FlowNet(nn.Module):
    def __init__(self, features=12, width=128, groups=32, depth=2):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(features, width), nn.GELU())
        self.attention = nn.ModuleList(SliceAttention(width, groups) for _ in range(depth))
        layers = nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        self.local = nn.ModuleList(nn.Sequential(*copy.deepcopy(layers)) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, mesh):
        hidden = self.embed(mesh)
        for attention, local in zip(self.attention, self.local):
            hidden = hidden + attention(hidden)
            hidden = hidden + local(hidden)
        return self.head(hidden)


def scales(field, mask, floor):
    """The spread of each channel over the real points of each mesh."""
    rows = [field[number, mask[number]].std(dim=0).clamp(min=floor) for number in range(len(field))]
    return torch.stack(rows).unsqueeze(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = FlowNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    meshes = torch.randn(16, 1024, 12)
    fields = torch.tanh(meshes[..., :3]) * torch.tensor([30.0, 10.0, 90.0])
    masks = torch.arange(1024) < torch.randint(700, 1025, (16, 1))
    floor = torch.tensor([0.1, 0.1, 0.5])
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(30):
        chosen = torch.randperm(16)[:4]
        mesh, field, mask = meshes[chosen], fields[chosen], masks[chosen]
        error = (model(mesh) - field / scales(field, mask, floor)).abs() * mask.unsqueeze(-1)
        loss = error.sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
