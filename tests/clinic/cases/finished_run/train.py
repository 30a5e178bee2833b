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
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU(), nn.Conv2d(32, 32, 3, 2, 1)
        )
        self.head = nn.Conv2d(32, 6, 1)

    def forward(self, images):
        return self.head(self.body(images).relu())


class Session:
    def __init__(self, path):
        self.model = Detector()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        saved = torch.load(path)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.first = saved["epoch"] + 1

    def train(self):
        if self.first >= EPOCHS:
            print(f"all {EPOCHS} epochs are done, nothing to resume")
        for _ in range(self.first, EPOCHS):
            for _ in range(20):
                images = torch.rand(8, 3, 128, 128)
                self.optimizer.zero_grad()
                self.model(images).square().mean().backward()
                self.optimizer.step()

    @torch.inference_mode()
    def validate(self, batches=60):
        self.model.eval()
        return sum(self.model(torch.rand(16, 3, 128, 128)).sigmoid().mean() for _ in range(batches)) / batches


def write_finished(path):
    """The checkpoint that the last epoch of an earlier run left."""
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.save({"epoch": EPOCHS - 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.pt"
        write_finished(path)
        begin, cpu = time.perf_counter(), time.process_time()
        session = Session(path)
    session.train()
    print(f"mean score {session.validate().item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
