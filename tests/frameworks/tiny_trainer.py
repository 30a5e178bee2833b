"""A Trainer of Hugging Face with a tiny model, on the clock of these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from profiler.frameworks.huggingface import ProfilerCallback
from tests.frameworks.examples import BATCH, CLOCK, DATA_MS, EVALUATE_MS, LOG_MS, SAVE_MS, STEPS, TRAIN_MS

__all__ = ["ProfilerCallback", "Tracker", "make_trainer", "torch"]

WORDS, LENGTH = 32, 8
ROWS = 5 * BATCH
"""Five batches in an epoch: with two batches for a step, its third step has only one."""


class Model(transformers.GPT2LMHeadModel):
    """A tiny GPT-2 whose calls take time of the test's clock."""

    def forward(self, input_ids: Any = None, labels: Any = None, **options: Any) -> Any:
        CLOCK.pass_ms(TRAIN_MS if self.training else EVALUATE_MS)
        return super().forward(input_ids, labels=labels, **options)


class Tracker(transformers.TrainerCallback):
    """Keeps what a tracker would get; logging and checkpoints take time."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, *, logs: Any, **_: Any) -> None:
        self.logs.append({**logs, "step": state.global_step})
        CLOCK.pass_ms(LOG_MS)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        CLOCK.pass_ms(SAVE_MS)


def make_trainer(folder: Path, tracker: Tracker, **options: Any) -> Any:
    transformers.set_seed(0)
    shape = {"n_positions": LENGTH, "n_embd": 8, "n_layer": 1, "n_head": 1, "bos_token_id": None, "eos_token_id": None}
    given: dict[str, Any] = {
        "max_steps": STEPS, "gradient_accumulation_steps": 2, "logging_steps": 1, "save_strategy": "steps",
        "save_steps": 3, "eval_strategy": "steps", "eval_steps": 2, "report_to": [], **options,
    }  # fmt: skip
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=BATCH, per_device_eval_batch_size=ROWS, use_cpu=True,
        disable_tqdm=True, **given,
    )  # fmt: skip
    ids = torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % WORDS
    data = [{"input_ids": row, "labels": row} for row in ids]

    def collate(rows: list[Any]) -> Any:
        CLOCK.pass_ms(DATA_MS)
        return transformers.default_data_collator(rows)

    return transformers.Trainer(
        Model(transformers.GPT2Config(vocab_size=WORDS, **shape)), arguments, collate, data, data, callbacks=[tracker]
    )
