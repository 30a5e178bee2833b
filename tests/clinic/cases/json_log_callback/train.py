"""Tune a tiny masked model with the Trainer; a callback keeps the losses in a JSON file."""

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

LINES = "--cured" in sys.argv


class LossFile(TrainerCallback):
    """Writes what the Trainer logs into a file."""

    def __init__(self, folder):
        self.path = Path(folder) / "train_loss.json"
        self.entries = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not logs or "loss" not in logs:
            return
        entry = {"name": "training_loss", "data": {"epoch": round(logs["epoch"], 3), "step": state.global_step}}
        entry["data"] |= {"value": logs["loss"], "rate": logs["learning_rate"], "norm": logs["grad_norm"]}
        if LINES:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, sort_keys=True) + "\n")
        else:
            self.entries.append(entry)
            self.path.write_text(json.dumps(self.entries, sort_keys=True, indent=4), encoding="utf-8")


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(60, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 60))

    def forward(self, ids, labels):
        return {"loss": nn.functional.cross_entropy(self.net(ids).flatten(0, 1), labels.flatten())}


torch.manual_seed(8)
rows = [{"ids": row, "labels": (row + 1) % 60} for row in torch.randint(0, 60, (1000, 12))]
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder, num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1, learning_rate=1e-3,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, log_level="error",
    )  # fmt: skip
    trainer = Trainer(model=Masked(), args=settings, train_dataset=rows, callbacks=[LossFile(folder)])
    begin, cpu = time.perf_counter(), time.process_time()
    trainer.train()
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
