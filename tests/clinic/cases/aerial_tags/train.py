"""Tag aerial scenes with many labels; a sampler draws the scenes so that rare labels are seen as often as others."""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

SCENES, FEATURES, TAGS = 3000, 128, 80


def make_scenes():
    """Feature vectors with tags of which some are a hundred times as frequent as others; each scene has one."""
    generator = torch.Generator().manual_seed(11)
    frequency = torch.logspace(-0.7, -2.7, TAGS)
    tags = torch.rand(SCENES, TAGS, generator=generator) < frequency
    tags[torch.arange(SCENES), torch.arange(SCENES) % TAGS] = True
    prototypes = torch.randn(TAGS, FEATURES, generator=generator)
    features = tags.float() @ prototypes + torch.randn(SCENES, FEATURES, generator=generator)
    return features, tags


class LeastDrawnTagSampler(Sampler):
    """Draws a scene of the tag that was drawn least so far."""

    def __init__(self, tags):
        self.tags = tags
        self.scenes_of = [tags[:, tag].nonzero().flatten().tolist() for tag in range(tags.shape[1])]
        self.drawn = [0] * tags.shape[1]

    def __len__(self):
        return len(self.tags)

    def least_drawn(self):
        return min(range(len(self.drawn)), key=self.drawn.__getitem__)

    def __iter__(self):
        for _ in range(len(self)):
            scene = random.choice(self.scenes_of[self.least_drawn()])
            for tag, present in enumerate(self.tags[scene]):
                if present:
                    self.drawn[tag] += 1
            yield scene


class Tagger(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(hidden, TAGS)

    def forward(self, features):
        return self.head(self.body(features))


def run_epoch(model, loader, criterion, optimizer):
    model.train()
    total = 0.0
    for features, tags in loader:
        optimizer.zero_grad()
        loss = criterion(model(features), tags.float())
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def recall(model, features, tags):
    model.eval()
    found = model(features) > 0
    return ((found & tags).sum(0) / tags.sum(0)).mean().item()


def main():
    random.seed(11)
    torch.manual_seed(11)
    features, tags = make_scenes()
    loader = DataLoader(TensorDataset(features, tags), batch_size=50, sampler=LeastDrawnTagSampler(tags))
    model = Tagger()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(7):
        loss = run_epoch(model, loader, criterion, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, mean recall {recall(model, features, tags):.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
