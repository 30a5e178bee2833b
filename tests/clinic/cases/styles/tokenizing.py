"""Tokenizes every batch inside of the loop, with the Hugging Face tokenizers."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
TEXT = "the device waits while the host cuts every sentence into pieces again and again " * 8
tokenizer = Tokenizer(models.BPE(unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=120, special_tokens=["?"], show_progress=False))
torch.manual_seed(0)
table, head = nn.EmbeddingBag(120, 64), nn.Linear(64, 2)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for step in range(steps):
    batch = [tokenizer.encode(TEXT[i:] + TEXT[:i]).ids[:100] for i in range(step % 5, 40, 2)]
    logits = head(table(torch.tensor(batch)))
    loss = nn.functional.cross_entropy(logits, torch.arange(len(batch)) % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f}")
