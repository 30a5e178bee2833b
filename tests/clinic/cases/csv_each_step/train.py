"""Train a module with several losses in Lightning and keep them in a CSV file."""

import argparse
import tempfile
import time

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Heads(L.LightningModule):
    """A trunk with one head for each task."""

    def __init__(self, tasks=10, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.Linear(width, tasks)

    def training_step(self, batch, index):
        inputs, targets = batch
        losses = (self.heads(self.trunk(inputs)) - targets).square().mean(0)
        named = {f"task_{number}": loss.detach() for number, loss in enumerate(losses)}
        self.logger.log_metrics(named, step=self.global_step)
        return losses.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


def main(interval):
    torch.manual_seed(1)
    inputs = torch.randn(4800, 20)
    loader = DataLoader(TensorDataset(inputs, inputs[:, :10].sin()), batch_size=8, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        logger = CSVLogger(folder, flush_logs_every_n_steps=interval)
        off = dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=logger, **off)
        begin, cpu = time.perf_counter(), time.process_time()
        trainer.fit(Heads(), loader)
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--interval", type=int, default=1, help="steps between two writes of the log")
    main(parser.parse_args().interval)
