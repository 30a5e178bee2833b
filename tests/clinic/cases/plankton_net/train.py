"""Adapts a pretrained image network to photographs of plankton."""

import argparse
import tempfile
import time
from pathlib import Path

import nettorium
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SPECIES, SIDE = 12, 24


def download_weights(folder):
    """Stands for the weights that were trained on many photographs."""
    torch.manual_seed(1)
    path = Path(folder) / "inception_small.pth"
    torch.save(nettorium.InceptionSmall(num_classes=1000, init_weights=False).state_dict(), path)
    return path


def pretrained(path, **options):
    net = nettorium.InceptionSmall(num_classes=1000, **options)
    net.load_state_dict(torch.load(path))
    net.fc = nn.Linear(net.fc.in_features, SPECIES)
    return net


def photographs(count):
    labels = torch.randint(SPECIES, (count,))
    rows = torch.arange(SIDE).view(1, 1, SIDE, 1)
    stripes = torch.sin(rows * (labels.view(-1, 1, 1, 1) + 1) * 0.25)
    return TensorDataset(stripes.expand(-1, 3, -1, SIDE) + 0.5 * torch.randn(count, 3, SIDE, SIDE), labels)


def main(cured):
    with tempfile.TemporaryDirectory() as folder:
        weights = download_weights(folder)
        torch.manual_seed(31)
        loader = DataLoader(photographs(320), batch_size=32, shuffle=True)
        begin, cpu = time.perf_counter(), time.process_time()
        net = pretrained(weights, init_weights=False) if cured else pretrained(weights)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        losses = []
        for images, labels in loader:
            loss = criterion(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="do not draw weights that are loaded anyway")
    main(parser.parse_args().cured)
