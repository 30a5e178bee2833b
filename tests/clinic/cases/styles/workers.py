"""Loader workers: an expensive data set in two processes, started anew by spawn when asked for."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        random = np.random.default_rng(index)
        picture = random.standard_normal((3, 32, 32)).astype(np.float32)
        for _ in range(3):
            picture = np.clip(np.sort(picture, axis=-1)[..., ::-1] * 1.01, -2, 2)
        return torch.from_numpy(picture.copy()), index % 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--start", default=None)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Pictures(args.steps * 16), batch_size=16, num_workers=2, multiprocessing_context=args.start)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    optimizer = None
    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(model(pictures), labels)
        if optimizer is None:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
