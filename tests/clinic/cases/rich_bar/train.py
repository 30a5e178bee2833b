"""Fit a small regression with Lightning and show its progress."""

import sys
import time

import lightning as L
import torch
from lightning.pytorch.callbacks import RichProgressBar
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EVERY = 50 if "--cured" in sys.argv else 1


class Regression(L.LightningModule):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.out = nn.Linear(width, 1)

    def training_step(self, batch, index):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.out(self.net(inputs)).squeeze(-1), targets)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(3)
inputs = torch.randn(4800, 16)
table = TensorDataset(inputs, inputs[:, :4].prod(-1) + 0.1 * torch.randn(len(inputs)))
trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_model_summary=False,
    callbacks=[RichProgressBar(refresh_rate=EVERY)],
)
begin, cpu = time.perf_counter(), time.process_time()
trainer.fit(Regression(), DataLoader(table, batch_size=16, shuffle=True))
print(f"\ntrained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
