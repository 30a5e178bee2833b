"""Lightning's quick start: an autoencoder with validation and a checkpoint, on whatever accelerator there is."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader


class AutoEncoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 784))

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
data = torch.rand(32 * 10, 784)
trainer = lightning.Trainer(max_epochs=2, logger=False, enable_progress_bar=False)
model = AutoEncoder()
trainer.fit(model, DataLoader(data, batch_size=32, num_workers=1), DataLoader(data, batch_size=32))
print("loss", trainer.callback_metrics["train_loss"].item(), trainer.callback_metrics["val_loss"].item())
