"""Train on rows that are in memory, which two workers send to the training process."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 2400


class Rows(Dataset):
    def __init__(self, size=SIZE):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.full((256,), index / self.size)


def main():
    torch.manual_seed(0)
    loader = DataLoader(Rows(), batch_size=4, num_workers=2)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for batch in loader:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
