"""Train a segmentation network on crops of volumes that a loader pins."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    """Crops of one volume; each is a raw image and its foreground."""

    def __init__(self, number, edge=8):
        self.volume = torch.randn(1, 24, 24, 24)
        self.number, self.edge = number, edge

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        x, y, z = ((index * step) % (24 - self.edge) for step in (1, 5, 11))
        crop = self.volume[:, x : x + self.edge, y : y + self.edge, z : z + self.edge]
        return crop, (crop > 0.3).float()


class Trainer:
    def __init__(self, args):
        self.device = torch.device(args.device)
        self.loader = DataLoader(Crops(args.crops), batch_size=4, shuffle=True, pin_memory=True)
        self.net = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 3, padding=1))
        self.net.to(self.device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def dice(self, scores, wanted):
        found = scores.sigmoid()
        return 1 - 2 * (found * wanted).sum() / (found.square().sum() + wanted.square().sum()).clamp(min=1e-6)

    def epoch(self):
        total = torch.zeros((), device=self.device)
        for raw, wanted in self.loader:
            raw, wanted = raw.to(self.device, non_blocking=True), wanted.to(self.device, non_blocking=True)
            loss = self.dice(self.net(raw), wanted)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total / len(self.loader)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--crops", type=int, default=40)
    torch.manual_seed(0)
    trainer = Trainer(parser.parse_args())
    for number in range(2):
        print(f"epoch {number}: {trainer.epoch().item():.4f}")
