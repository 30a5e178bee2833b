"""Segment livers in CT volumes, on random crops around and beside the organ."""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

SHAPE, CROP = (128, 128, 72), 18


def scan(seed):
    """A volume with an ellipsoid organ in a body, in air."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij"))
    body = (grid**2).sum(0) < 0.8
    center = rng.uniform(-0.2, 0.2, 3)[:, None, None, None]
    organ = (((grid - center) / 0.3) ** 2).sum(0) < 1
    image = body * 0.4 + organ * 0.3 + rng.normal(0, 0.1, SHAPE) * body
    return {"image": image.astype(np.float32), "label": organ.astype(np.uint8)}


def label_indices(item, threshold=0.05):
    """Flat positions of the organ, and of the body outside of it."""
    foreground = np.flatnonzero(item["label"])
    background = np.flatnonzero((item["image"] > threshold) & (item["label"] == 0))
    return foreground, background


class RandCropByLabel:
    """Crops whose centers lie in the organ or beside it, with equal probability."""

    def __init__(self, size, rng):
        self.size, self.rng = size, rng

    def __call__(self, item):
        foreground, background = item["indices"] if "indices" in item else label_indices(item)
        chosen = self.rng.choice(foreground if self.rng.random() < 0.5 else background)
        center = np.unravel_index(chosen, item["label"].shape)
        corner = [
            min(max(c - self.size // 2, 0), n - self.size) for c, n in zip(center, item["label"].shape, strict=True)
        ]
        window = tuple(slice(c, c + self.size) for c in corner)
        return item["image"][window], item["label"][window]


class CachedScans(Dataset):
    """Scans that were read once; what is random is done for each item."""

    def __init__(self, scans, transform, with_indices):
        self.scans, self.transform = scans, transform
        if with_indices:
            self.scans = [{**item, "indices": label_indices(item)} for item in scans]

    def __len__(self):
        return len(self.scans) * 8

    def __getitem__(self, index):
        image, label = self.transform(self.scans[index % len(self.scans)])
        return torch.from_numpy(image)[None].clone(), torch.from_numpy(label).long()


def main():
    """Train a small network for some epochs."""
    torch.manual_seed(0)
    scans = [scan(seed) for seed in range(8)]
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 2, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    begin, cpu = time.perf_counter(), time.process_time()
    crop = RandCropByLabel(CROP, np.random.default_rng(1))
    dataset = CachedScans(scans, crop, with_indices="--cured" in sys.argv)
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    for epoch in range(6):
        for image, label in loader:
            loss = F.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
