"""Tell healthy heart sounds from murmurs, with shifted pitch as augmentation."""

import random
import time

import torch
from sonics import PitchShift
from torch import nn

RATE = 800


def heart_sounds(count, seconds=2):
    """Beats as decaying tones; a murmur is noise between them."""
    clock = torch.arange(seconds * RATE) / RATE
    labels = torch.randint(2, (count,))
    since = clock % (0.7 + 0.3 * torch.rand(count, 1))
    waves = torch.exp(-25 * since) * torch.sin(2 * torch.pi * (60 + 40 * torch.rand(count, 1)) * since)
    murmur = 0.3 * torch.randn(count, len(clock)) * ((since > 0.2) & (since < 0.4))
    return waves + murmur * labels[:, None] + 0.05 * torch.randn(count, len(clock)), labels


class Classifier(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.ears = nn.Sequential(nn.Conv1d(1, width, 16, 4), nn.ReLU(), nn.Conv1d(width, 24, 8, 4), nn.ReLU())
        self.head = nn.Linear(24, 2)

    def forward(self, waves):
        return self.head(self.ears(waves[:, None]).mean(-1))


class Session:
    """Trains on random batches; the pitch of some of them is shifted."""

    def __init__(self, waves, labels):
        self.waves, self.labels, self.net = waves, labels, Classifier()
        self.shifts = [PitchShift(RATE, semitones) for semitones in (-2, -1, 1, 2)]
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)

    def step(self, size=24):
        rows = torch.randint(len(self.waves), (size,))
        waves = random.choice(self.shifts)(self.waves[rows])
        loss = nn.functional.cross_entropy(self.net(waves), self.labels[rows])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    random.seed(8)
    torch.manual_seed(8)
    session = Session(*heart_sounds(400))
    begin, cpu = time.perf_counter(), time.process_time()
    losses = [session.step() for _ in range(160)]
    print(f"loss {sum(losses[:10]) / 10:.3f} at first, {sum(losses[-10:]) / 10:.3f} at last")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
