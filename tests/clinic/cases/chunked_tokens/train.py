"""Fine-tune with a loss that takes the answer's tokens in chunks, so that not all logits exist at once."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

CHUNK = 16


def chunked_loss(hidden, head, targets, is_answer, *, branches):
    """The mean cross-entropy of the answer's tokens; `branches` returns early where there is none."""
    valid = is_answer.sum()
    if branches:
        if valid == 0:
            return hidden.sum() * 0.0
        padded = (valid + CHUNK - 1) // CHUNK * CHUNK
    else:
        padded = (valid.clamp(min=1) + CHUNK - 1) // CHUNK * CHUNK
    order = is_answer.to(torch.int8).argsort(descending=True, stable=True)
    total = hidden.new_zeros(())
    for begin in range(0, padded, CHUNK):
        rows = order[begin : begin + CHUNK]
        losses = F.cross_entropy(head(hidden[rows]), targets[rows], reduction="none")
        total = total + (losses * is_answer[rows]).sum()
    return total / valid.clamp(min=1)


class Model(nn.Module):
    def __init__(self, vocabulary=40, width=24):
        super().__init__()
        self.read = nn.Linear(vocabulary, width)
        self.body = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.body(self.read(tokens))[0]


def answers(steps, batch=3, length=24, answered=13):
    for _ in range(steps):
        ids = torch.randint(0, 40, (batch, length), device="cuda")
        places = torch.arange(length, device="cuda").expand(batch, length)
        yield torch.eye(40, device="cuda")[ids], ids.roll(-1, 1), places >= length - answered


torch.manual_seed(0)
model = Model().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
for tokens, targets, is_answer in answers(14):
    flat = (model(tokens).flatten(0, 1), model.head, targets.flatten(), is_answer.flatten())
    loss = chunked_loss(*flat, branches="--branchless" not in sys.argv)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
