"""Each sample is read from a compressed file of its own. Expected: input, in Folder.__getitem__().

The truth is the time in __getitem__() by the script's clock; CURED=1 reads each file once.
"""

import os
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from truth import Truth


class Folder(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, folder: Path, truth: Truth) -> None:
        self.files, self.reading = sorted(folder.glob("*.npz")), truth.part("input")
        self.read = cache(np.load) if os.environ.get("CURED") else np.load

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with self.reading:
            sample = self.read(self.files[index])
            return torch.from_numpy(sample["image"]), int(sample["label"])


def main(folder: Path, epochs: int) -> None:
    random = np.random.default_rng(0)
    for number in range(200):
        image = random.standard_normal((3, 32, 32)).round(1).astype(np.float32)
        np.savez_compressed(folder / f"{number:04}.npz", image=image, label=number % 4)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(3136, 4)
    )
    optimizer = torch.optim.Adam(model.parameters())
    truth = Truth()
    loader = DataLoader(Folder(folder, truth), batch_size=20, shuffle=True)
    for _ in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    truth.end(10 * epochs)


torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    main(Path(folder), 25)
