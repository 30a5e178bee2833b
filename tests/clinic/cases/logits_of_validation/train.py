"""Train a masked language model and evaluate it once."""

import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

VOCABULARY = 4000


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(5, VOCABULARY, (count, 64), generator=draw)
        self.masked = torch.rand(count, 64, generator=draw) < 0.15

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens, masked = self.tokens[index], self.masked[index]
        return {"input_ids": tokens.masked_fill(masked, 4), "labels": tokens.masked_fill(~masked, -100)}


class MaskedModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.mix(self.embed(input_ids))[0])
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def compute_metrics(found):
    best = found.predictions if found.predictions.ndim == 2 else found.predictions.argmax(-1)
    hits = np.bincount(found.label_ids[best == found.label_ids], minlength=VOCABULARY)
    return {"recall": float((hits / np.maximum(np.bincount(found.label_ids.ravel()), 1)).mean())}


def main(folder):
    arguments = TrainingArguments(
        folder, max_steps=6, per_device_train_batch_size=8, per_device_eval_batch_size=8, eval_strategy="steps",
        eval_steps=6, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        MaskedModel(), arguments, train_dataset=Sentences(48, 0), eval_dataset=Sentences(280, 1),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=(lambda logits, _: logits.argmax(-1)) if "--best-tokens" in sys.argv else None,
    )  # fmt: skip
    begin, cpu = time.perf_counter(), time.process_time()
    try:
        trainer.train()
    finally:
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(name)
