"""Train a captioner's scorer on batches of features, captions and weights."""

import argparse

import torch
from liftoff import Launcher
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, number=160):
        self.features = torch.randn(number, 20)
        self.captions = torch.randn(number, 12)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return {
            "features": self.features[index],
            "caption": self.captions[index],
            "weight": torch.tensor(1.0 + index % 3),
        }


class Scorer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.image, self.text = nn.Linear(20, width), nn.Linear(12, width)

    def forward(self, batch):
        image = nn.functional.normalize(self.image(batch["features"]), dim=-1)
        text = nn.functional.normalize(self.text(batch["caption"]), dim=-1)
        return image @ text.T


def loss_of(scores, weights):
    wanted = torch.arange(len(scores), device=scores.device)
    losses = nn.functional.cross_entropy(scores / 0.1, wanted, reduction="none")
    return (losses * weights).sum() / weights.sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--non-blocking", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    launcher = Launcher("cuda", non_blocking=args.non_blocking)
    net = Scorer()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = DataLoader(Captions(), batch_size=16, shuffle=True, pin_memory=True, drop_last=True)
    net, optimizer, loader = launcher.prepare(net, optimizer, loader)
    for epoch in range(args.epochs):
        total = torch.zeros((), device="cuda")
        for batch in loader:
            loss = loss_of(net(batch), batch["weight"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.4f}")


main()
