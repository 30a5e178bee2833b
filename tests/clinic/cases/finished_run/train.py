"""Continue a training from its checkpoint, then validate the model."""

import tempfile
import time
from pathlib import Path

import torch
from torch import nn

EPOCHS = 2


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1)
        self.head = nn.Conv2d(32, 6, 1)

    def forward(self, images):
        return self.head(self.second(self.first(images).relu()).relu())


def train(model, first):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if first >= EPOCHS:
        print(f"all {EPOCHS} epochs are done, nothing to resume")
    for _ in range(20 * (EPOCHS - first)):
        images = torch.rand(8, 3, 128, 128)
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()


@torch.inference_mode()
def validate(model, batches=60):
    model.eval()
    return sum(model(torch.rand(16, 3, 128, 128)).sigmoid().mean() for _ in range(batches)) / batches


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.pt"
        torch.save({"epoch": EPOCHS - 1, "model": Detector().state_dict()}, path)
        begin, cpu = time.perf_counter(), time.process_time()
        saved = torch.load(path)
    model = Detector()
    model.load_state_dict(saved["model"])
    train(model, saved["epoch"] + 1)
    print(f"mean score {validate(model).item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
