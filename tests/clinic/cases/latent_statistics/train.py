"""Train a denoiser on cached latents that are scaled by the statistics of an autoencoder."""

import sys

import torch
from torch import nn


class Autoencoder(nn.Module):
    """Only its statistics matter once the latents are cached."""

    def __init__(self, channels):
        super().__init__()
        self.encode = nn.Linear(24, channels)
        self.norm = nn.BatchNorm1d(channels, affine=False)

    @torch.no_grad()
    def cache(self, images):
        return self.norm(self.encode(images))


class Denoiser(nn.Module):
    def __init__(self, channels, width=40):
        super().__init__()
        self.time = nn.Linear(1, width)
        self.inner, self.outer = nn.Linear(channels, width), nn.Linear(width, channels)

    def forward(self, noisy, time):
        return self.outer(torch.relu(self.inner(noisy) + self.time(time)))


class Setup:
    def __init__(self, keeps_statistics):
        self.device = torch.device("cuda")
        self.autoencoder = Autoencoder(8)
        self.latents = self.autoencoder.cache(torch.randn(64, 24)).to(self.device)
        if keeps_statistics:
            self.autoencoder.norm.to(self.device)
        self.net = Denoiser(8).to(self.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)

    def scaled(self, latents):
        norm = self.autoencoder.norm
        mean, variance = norm.running_mean.to(latents.device), norm.running_var.to(latents.device)
        return (latents - mean) / (variance + norm.eps).sqrt()

    def predict(self, latents):
        clean = self.scaled(latents)
        time = torch.rand(len(clean), 1, device=self.device)
        noise = torch.randn_like(clean)
        return self.net(clean * (1 - time) + noise * time, time), noise - clean

    def run(self):
        for step in range(20):
            begin = step * 16 % len(self.latents)
            found, wanted = self.predict(self.latents[begin : begin + 16])
            loss = nn.functional.mse_loss(found, wanted)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    print(f"loss {Setup('--keep-statistics' in sys.argv).run():.4f}")
