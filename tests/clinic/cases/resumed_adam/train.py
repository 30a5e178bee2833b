"""Train an autoencoder for a while, then go on from its checkpoint in a fresh trainer."""

import io
import sys
from itertools import pairwise

import torch
from emberfit import Fit
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise((32, 24, 16, 8, 16, 24, 32))]
        self.net = nn.Sequential(*layers, nn.Linear(32, 32))

    def configure(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.01, foreach=False)

    def before_batch(self, optimizer, number):
        if number == 0 and "--counters-on-host" in sys.argv:
            for state in optimizer.state.values():
                state["step"] = state["step"].cpu()

    def loss(self, batch):
        return nn.functional.mse_loss(self.net(batch), batch)


def data(number):
    for _ in range(number):
        yield torch.randn(20, 32, device="cuda")


if __name__ == "__main__":
    torch.manual_seed(0)
    file = io.BytesIO()
    first, second = Fit(Autoencoder(), "cuda"), Fit(Autoencoder(), "cuda")
    first.run(data(4))
    first.save(file)
    file.seek(0)
    second.resume(file)
    second.run(data(20))
    with torch.no_grad():
        print(f"loss {second.module.loss(next(data(1))).item():.4f}")
