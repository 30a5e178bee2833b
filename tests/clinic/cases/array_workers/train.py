"""Train a small convolutional network on pictures in memory with Lightning."""

import sys
import time
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS = 1 if "--worker" in sys.argv else 0


class Pictures(Dataset):
    """Pictures that were read before, as one array."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(4)
        self.pixels = torch.rand(count, 3, 32, 32, generator=generator)
        self.means = self.pixels.mean((1, 2, 3)).unsqueeze(1)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.pixels[index], self.means[index]


class Net(pl.LightningModule):
    def __init__(self, width=40):
        super().__init__()
        first = [nn.Conv2d(3, width, 3, padding=1), nn.ELU(), nn.Conv2d(width, width, 3, padding=1), nn.ELU()]
        second = [nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ELU(), nn.AdaptiveAvgPool2d(1)]
        self.layers = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(width, 1))

    def training_step(self, batch, number):
        pixels, means = batch
        return nn.functional.mse_loss(self.layers(pixels), means)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    pl.seed_everything(0)
    model = Net()
    loader = DataLoader(Pictures(640), 64, shuffle=True, num_workers=WORKERS, persistent_workers=WORKERS > 0)
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", **silent)
    begin, cpu = time.perf_counter(), time.process_time()
    trainer.fit(model, loader)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
