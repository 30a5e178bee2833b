"""Fine-tune a small classifier with the Trainer and report how much memory each stage took."""

import sys
import tempfile
import time

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Classifier(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(500, width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, 2)

    def forward(self, ids, labels=None):
        logits = self.head(self.body(self.words(ids)).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(0)
reviews = [{"ids": ids, "labels": (ids.float().mean() > 250).long()} for ids in torch.randint(0, 500, (1600, 24))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=1e-3,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        skip_memory_metrics="--cured" in sys.argv,
    )
    trainer = Trainer(model=Classifier(), args=arguments, train_dataset=reviews)
    begin, cpu = time.perf_counter(), time.process_time()
    result = trainer.train()
    print(f"loss {result.training_loss:.3f}, {sorted(result.metrics)}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
