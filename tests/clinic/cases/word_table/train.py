"""A tagger of words with a large vocabulary that is trained one sentence at a time."""

import argparse
import time

import torch
from torch import nn

WORDS = 120_000
TAGS = 12


class Tagger(nn.Module):
    """Looks up each word, reads the sentence both ways and scores the tags."""

    def __init__(self, width, hidden, is_sparse):
        super().__init__()
        self.table = nn.Embedding(WORDS, width, sparse=is_sparse)
        self.reader = nn.GRU(width, hidden, bidirectional=True)
        self.scores = nn.Linear(2 * hidden, TAGS)

    def forward(self, words):
        read, _ = self.reader(self.table(words))
        return self.scores(read)


def make_corpus(sentences):
    """Sentences of 6 to 20 words; frequent words have small numbers, and a word's tag follows from its number."""
    generator = torch.Generator().manual_seed(5)
    corpus = []
    for _ in range(sentences):
        length = int(torch.randint(6, 21, (), generator=generator))
        words = (WORDS * torch.rand(length, generator=generator) ** 3).long()
        corpus.append((words, words % TAGS))
    return corpus


def train(tagger, corpus, epochs):
    """Train with plain SGD and print the mean loss of each epoch."""
    optimizer = torch.optim.SGD(tagger.parameters(), lr=0.3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total = 0.0
        for words, tags in corpus:
            optimizer.zero_grad()
            loss = criterion(tagger(words), tags)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(corpus):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sparse", action="store_true", help="gradients of the table only for the words of a sentence")
    options = parser.parse_args()
    torch.manual_seed(5)
    sentences = make_corpus(30)
    tagger = Tagger(100, 32, options.sparse)
    begin, cpu = time.perf_counter(), time.process_time()
    train(tagger, sentences, 3)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
