"""A small language model learns from conversations that are kept in memory."""

import argparse
import itertools
import random
import time

import feedline
import torch
from torch import nn

VOCABULARY, LENGTH, STEPS = 500, 48, 80
ROLES = {"user": 1, "assistant": 2}


def conversations(count, seed):
    draw = random.Random(seed)
    found = []
    for number in range(count):
        turns, word = [], draw.randrange(VOCABULARY)
        for turn in range(4):
            tokens = [3 + (word + step * 7) % (VOCABULARY - 3) for step in range(draw.randrange(4, 12))]
            turns.append({"role": "assistant" if turn % 2 else "user", "tokens": tokens})
        found.append({"id": number, "turns": turns})
    return found


def encode(batch):
    rows = torch.zeros(len(batch), LENGTH + 1, dtype=torch.long)
    for row, conversation in zip(rows, batch, strict=True):
        tokens = []
        for turn in conversation["turns"]:
            tokens.append(ROLES[turn["role"]])
            tokens.extend(turn["tokens"])
        tokens = tokens[: LENGTH + 1]
        row[: len(tokens)] = torch.tensor(tokens)
    return rows[:, :-1], rows[:, 1:]


class ChatModel(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.mixer(self.tokens(tokens))[0])


def main(cured):
    torch.manual_seed(3)
    options = {"gc_freeze": True} if cured else {}
    loader = feedline.get_loader(conversations(6500, 5), 16, encode, seed=11, gc_every_n_iter=4, **options)
    model = ChatModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    begin, cpu = time.perf_counter(), time.process_time()
    losses = []
    for step, (tokens, targets) in enumerate(itertools.islice(loader, STEPS), 1):
        loss = criterion(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % 20 == 0:
            print(f"step {step}: loss {torch.stack(losses).mean():.4f}")
            losses.clear()
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="freeze what is in memory before the loader begins")
    main(parser.parse_args().cured)
