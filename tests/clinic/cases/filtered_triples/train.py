"""Learn embeddings of a knowledge graph with ComplEx; no negative sample may be a known triple."""

import sys
import time
from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

ENTITIES, RELATIONS, TRIPLES = 2000, 24, 24_000
SUBJECT, OBJECT = 0, 2


def read_graph(rng):
    """Triples (subject, relation, object); few entities take part in many of them."""
    popular = (ENTITIES * rng.random((TRIPLES, 2)) ** 3).astype(np.int64)
    relations = rng.integers(RELATIONS, size=TRIPLES)
    return np.unique(np.stack([popular[:, 0], relations, popular[:, 1]], 1), axis=0)


class RowFilter:
    """Replaces false negatives row by row, with the known entities of each pair."""

    def __init__(self, triples, rng):
        self.rng, self.known = rng, {SUBJECT: defaultdict(list), OBJECT: defaultdict(list)}
        for subject, relation, target in triples.tolist():
            self.known[SUBJECT][relation, target].append(subject)
            self.known[OBJECT][subject, relation].append(target)

    def sample(self, positives, slot, count):
        drawn = self.rng.integers(ENTITIES, size=(len(positives), count))
        for row, (subject, relation, target) in enumerate(positives.tolist()):
            pair = (relation, target) if slot == SUBJECT else (subject, relation)
            known = np.array(self.known[slot][pair])
            wrong = np.flatnonzero(np.isin(drawn[row], known))
            while len(wrong):
                drawn[row, wrong] = self.rng.integers(ENTITIES, size=len(wrong))
                wrong = wrong[np.isin(drawn[row, wrong], known)]
        return drawn


class KeyFilter:
    """Looks up the whole batch in a sorted array of all triples as numbers."""

    def __init__(self, triples, rng):
        self.rng, self.keys = rng, np.sort(self.key(*triples.T))

    def key(self, subject, relation, target):
        return (subject * RELATIONS + relation) * ENTITIES + target

    def sample(self, positives, slot, count):
        drawn = self.rng.integers(ENTITIES, size=(len(positives), count))
        subject, relation, target = (np.repeat(column[:, None], count, 1) for column in positives.T)
        wrong = np.ones_like(drawn, dtype=bool)
        while wrong.any():
            entities = drawn[wrong]
            keys = self.key(entities, relation[wrong], target[wrong])
            if slot == OBJECT:
                keys = self.key(subject[wrong], relation[wrong], entities)
            places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
            wrong[wrong] = self.keys[places] == keys
            drawn[wrong] = self.rng.integers(ENTITIES, size=int(wrong.sum()))
        return drawn


class Batches:
    """The collate function: positives with negatives for subjects and objects."""

    def __init__(self, sampler, negatives):
        self.sampler, self.negatives = sampler, negatives

    def __call__(self, rows):
        positives = np.stack(rows)
        slots = [self.sampler.sample(positives, slot, self.negatives) for slot in (SUBJECT, OBJECT)]
        return torch.from_numpy(positives), *map(torch.from_numpy, slots)


class ComplEx(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.entities, self.relations = nn.Embedding(ENTITIES, 2 * width), nn.Embedding(RELATIONS, 2 * width)

    def forward(self, subjects, relations, objects):
        subject, relation, target = self.entities(subjects), self.relations(relations), self.entities(objects)
        (a, b), (c, d), (e, f) = (each.chunk(2, -1) for each in (subject, relation, target))
        return ((a * c - b * d) * e + (a * d + b * c) * f).sum(-1)


def train(model, loader, epochs):
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        total = 0.0
        for positives, subjects, objects in loader:
            subject, relation, target = positives.unsqueeze(-1).unbind(1)
            good = model(subject, relation, target)
            wrong = torch.cat([model(subjects, relation, target), model(subject, relation, objects)], 1)
            loss = nn.functional.softplus(-good).mean() + nn.functional.softplus(wrong).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    triples = read_graph(rng)
    sampler = (KeyFilter if "--by-key" in sys.argv else RowFilter)(triples, rng)
    loader = DataLoader(triples, batch_size=512, shuffle=True, drop_last=True, collate_fn=Batches(sampler, 16))
    begin, cpu = time.perf_counter(), time.process_time()
    train(ComplEx(), loader, 2)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
