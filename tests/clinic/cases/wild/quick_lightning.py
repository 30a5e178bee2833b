"""Lightning's quick start: an autoencoder with validation after each epoch, and data made in Python. Expected: waiting
for data, in __getitem__(); validation is no step.

The truth is the time in __getitem__() by the script's clock, and a second py-spy on the bare program.
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([[(index * row + column) % 255 / 255 for column in range(28)] for row in range(28)])


class AutoEncoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 784))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        x = batch.view(len(batch), -1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        x = batch.view(len(batch), -1)
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(AutoEncoder(), DataLoader(Digits(32 * 100), batch_size=32), DataLoader(Digits(32 * 20), batch_size=32))
print(f"steps {trainer.global_step}")
