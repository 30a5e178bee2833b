"""A healthy training with one worker, which crops, flips and scales images while the model trains on earlier ones."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.random = np.random.default_rng(0)
        self.images = self.random.integers(0, 255, (300, 64, 64, 3), dtype=np.uint8)

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        image = self.images[index % len(self.images)]
        if self.random.random() < 0.5:
            image = image[:, ::-1]
        padded = np.pad(image, ((4, 4), (4, 4), (0, 0)), mode="reflect")
        top, left = self.random.integers(0, 8, 2)
        cropped = np.ascontiguousarray(padded[top : top + 64, left : left + 64].transpose(2, 0, 1))
        return torch.from_numpy(cropped).float() / 255, index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    channels = ((3, 32), (32, 64), (64, 64))
    layers = [layer for sizes in channels for layer in (nn.Conv2d(*sizes, 3, 2, 1), nn.ReLU())]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=True)
    loader = DataLoader(Images(), 32, shuffle=True, num_workers=1, persistent_workers=True, prefetch_factor=4)
    warm, began = arguments.steps // 5, 0.0
    for step, (images, labels) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == warm:
            began, cpu = time.perf_counter(), time.process_time()
        if step == arguments.steps:
            break
    print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
