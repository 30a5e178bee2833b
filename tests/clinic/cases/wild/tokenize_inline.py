"""Every batch is tokenized inside the loop. Expected: waiting for data: the tokenizer, called in encode().

The truth is the time in encode() by the script's clock; CURED=1 tokenizes the texts before the loop.
"""

import os

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from truth import Truth

torch.manual_seed(0)
TEXT = "the device waits while the host cuts every sentence into pieces again and again " * 20
tokenizer = Tokenizer(models.BPE(unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=120, special_tokens=["?"], show_progress=False))
table, head = torch.nn.EmbeddingBag(120, 128), torch.nn.Linear(128, 2)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)


def encode(step: int) -> torch.Tensor:
    texts = [TEXT[start:] + TEXT[:start] for start in range(step % 8, 64, 2)]
    return torch.tensor([tokenizer.encode(text).ids[:200] for text in texts])


def train(steps: int) -> None:
    ready = [encode(step) for step in range(8)] if os.environ.get("CURED") else []
    truth = Truth()
    tokenizing = truth.part("input")
    for step in range(steps):
        if ready:
            tokens = ready[step % 8]
        else:
            with tokenizing:
                tokens = encode(step)
        loss = torch.nn.functional.cross_entropy(head(table(tokens)), torch.arange(len(tokens)) % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth.end(steps)


train(700)
