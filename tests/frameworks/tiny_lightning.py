"""A model, a logger and options of Lightning's Trainer, on the clock of these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.profilers import SimpleProfiler

from profiler.frameworks.lightning import ProfilerCallback
from tests.frameworks.examples import BATCH, CLOCK, DATA_MS, EVALUATE_MS, LOG_MS, SAVE_MS, STEPS, TRAIN_MS, VALUE

__all__ = ["CSVLogger", "ModelCheckpoint", "ProfilerCallback", "SimpleProfiler", "TensorBoardLogger", "WandbLogger"]

BATCHES = 12


class Model(lightning.LightningModule):
    """A linear model whose calls take time of the test's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        CLOCK.pass_ms(TRAIN_MS)
        loss = self.net(batch["input_ids"].float()).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        CLOCK.pass_ms(EVALUATE_MS)
        self.log("score", self.net(batch["input_ids"].float()).mean())

    def on_save_checkpoint(self, checkpoint: Any) -> None:
        CLOCK.pass_ms(SAVE_MS)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Tracker(Logger):
    """Keeps what it gets; logging takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[tuple[int, dict[str, float]]] = []

    name = version = "tracker"

    def log_hyperparams(self, *_: Any) -> None:
        """Keep none."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.logs.append((step or 0, dict(metrics)))
        CLOCK.pass_ms(LOG_MS)

    def values(self) -> list[tuple[int, dict[str, float]]]:
        return [(step, log) for step, log in self.logs if any(name.startswith(VALUE) for name in log)]

    def others(self) -> list[tuple[int, dict[str, float]]]:
        return [(step, log) for step, log in self.logs if not any(name.startswith(VALUE) for name in log)]


def collate(rows: list[Any]) -> dict[str, Any]:
    CLOCK.pass_ms(DATA_MS)
    return {"input_ids": torch.stack(rows)}


def make_loader() -> Any:
    return torch.utils.data.DataLoader(
        list(torch.arange(BATCHES * BATCH * 8).reshape(-1, 8)), BATCH, collate_fn=collate
    )


def options(folder: Path, logger: Any, **others: Any) -> dict[str, Any]:
    return {
        "max_steps": STEPS, "accumulate_grad_batches": 2, "val_check_interval": 6, "limit_val_batches": 1,
        "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 2,
        "default_root_dir": folder, "logger": logger, **others,
    }  # fmt: skip


def make_model() -> Any:
    lightning.seed_everything(0, verbose=False)
    return Model()
