"""Classify headlines by the mean of their words' vectors, which begin as vectors from a file."""

import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from wordvectors import WhitespaceEncoder, WordVectors

TOPICS, DIM = 5, 24


def write_vectors(path, words):
    """A file of vectors for many words, of which the headlines use a part."""
    vectors = torch.randn(words, DIM).mul(1000).round().div(1000).tolist()
    lines = (f"word{number} {' '.join(map(str, vector))}\n" for number, vector in enumerate(vectors))
    path.write_text("".join(lines), encoding="utf-8")


def make_headlines(count, words):
    """Headlines of 8 words; a word belongs to one topic, and two thirds of a headline's words to its own."""
    headlines = []
    for _ in range(count):
        topic = random.randrange(TOPICS)
        chosen = [random.randrange(words) for _ in range(8)]
        chosen[:5] = [number - number % TOPICS + topic for number in chosen[:5]]
        headlines.append((" ".join(f"word{number}" for number in chosen), topic))
    return headlines


def initial_weights(encoder, path):
    """A row for each word of the headlines, from the file where it has the word."""
    pretrained = WordVectors(path, is_include=lambda word: word in set(encoder.vocab))
    weights = torch.empty(len(encoder.vocab), pretrained.dim)
    for row, word in enumerate(encoder.vocab):
        weights[row] = pretrained[word]
    return weights


class HeadlineClassifier(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.words = nn.EmbeddingBag.from_pretrained(weights, freeze=False, mode="mean")
        self.topics = nn.Sequential(nn.Linear(weights.shape[1], 64), nn.ReLU(), nn.Linear(64, TOPICS))

    def forward(self, words):
        return self.topics(self.words(words))


def train(model, words, topics, epochs=6, size=32):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(words)).split(size):
            loss = nn.functional.cross_entropy(model(words[rows]), topics[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch}: loss {total / len(words):.4f}")


def main():
    random.seed(6)
    torch.manual_seed(6)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.24d.txt"
        write_vectors(path, 14_000)
        headlines = make_headlines(1600, 6_000)
        begin, cpu = time.perf_counter(), time.process_time()
        encoder = WhitespaceEncoder([text for text, _ in headlines])
        words = torch.stack([encoder.encode(text) for text, _ in headlines])
        model = HeadlineClassifier(initial_weights(encoder, path))
    train(model, words, torch.tensor([topic for _, topic in headlines]))
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
