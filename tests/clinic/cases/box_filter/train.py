"""Count small cells: regress a density map from pictures with boxes."""

import random
import time

import augkit
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Cells(Dataset):
    """Pictures of some hundred bright cells."""

    def __init__(self, count, side=80):
        draw = np.random.default_rng(4)
        self.images = draw.normal(0, 0.1, (count, side, side)).astype(np.float32)
        self.boxes = [[(*at, *(at + 0.04)) for at in draw.uniform(0, 0.95, (200, 2))] for _ in range(count)]
        for image, boxes in zip(self.images, self.boxes):
            for left, top, right, bottom in np.multiply(boxes, side).astype(int):
                image[top:bottom, left:right] += 1
        self.augment = augkit.Compose([augkit.Crop(0.95), augkit.Crop(0.85)], min_area=4, min_visible=0.3)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image, boxes = self.augment(self.images[index], self.boxes[index])
        places = np.asarray(boxes)[:, :2]
        density, _, _ = np.histogram2d(places[:, 1], places[:, 0], bins=16, range=((0, 1), (0, 1)))
        return image[None].copy(), density.astype(np.float32)


random.seed(0)
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Conv2d(8, 1, 3, padding=1))
cells = Cells(120)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
begin, cpu = time.perf_counter(), time.process_time()
for _ in range(3):
    for images, densities in DataLoader(cells, batch_size=8, shuffle=True):
        loss = nn.functional.poisson_nll_loss(net(images).squeeze(1), densities)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
