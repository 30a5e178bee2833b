"""Train a forecaster in bfloat16."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    steps: int = 22
    width: int = 32
    dtype: torch.dtype = torch.bfloat16
    device: str = "cuda"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, field):
        return field + torch.relu(self.mix(self.norm(field)))


class Forecaster(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(12, width), Block(width), Block(width), nn.Linear(width, 12))


class Run:
    def __init__(self, settings):
        self.settings = settings
        self.net = Forecaster(settings.width).to(settings.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler(settings.device)

    def fields(self):
        for _ in range(self.settings.steps):
            now = torch.randn(16, 12, device=self.settings.device)
            yield now, now.cumsum(-1) / 12

    def train(self):
        mean = torch.zeros((), device=self.settings.device)
        for now, later in self.fields():
            with torch.autocast(self.settings.device, dtype=self.settings.dtype):
                loss = nn.functional.mse_loss(self.net(now).float(), later)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            mean += loss.detach() / self.settings.steps
        return mean.item()


torch.manual_seed(0)
print(f"mean loss {Run(Settings()).train():.4f}")
