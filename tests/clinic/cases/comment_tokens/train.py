"""Classify comments: all of them are turned into tokens before the training."""

import random
import sys
import time

import datasets
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

EXTRA = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def make_tokenizer(words):
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate((*EXTRA, *words))}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")


def make_comments(words, count):
    draw = random.Random(0)
    text = [" ".join(draw.choices(words, k=draw.randint(20, 80))) for _ in range(count)]
    return datasets.Dataset.from_dict({"text": text, "label": [draw.randint(0, 1) for _ in text]})


def main():
    torch.manual_seed(0)
    words = [f"w{number}" for number in range(3000)]
    tokenizer, comments = make_tokenizer(words), make_comments(words, 12_000)
    model = nn.Sequential(nn.EmbeddingBag(len(words), 32), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters())
    begin, cpu = time.perf_counter(), time.process_time()
    try:
        encoded = comments.map(
            lambda row: tokenizer(row["text"], truncation=True, padding="max_length", max_length=64),
            batched="--batched" in sys.argv,
        ).with_format("torch")
        for batch in DataLoader(encoded, batch_size=256):
            loss = nn.functional.cross_entropy(model(batch["input_ids"]), batch["label"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    datasets.disable_progress_bars()
    main()
