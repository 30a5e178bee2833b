"""Imitate a robot: predict the next commands from a camera picture and the joints."""

import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Recording:
    """One episode: compressed pictures and the joints at each moment."""

    def __init__(self, generator, length=40):
        pictures = generator.integers(0, 255, (length, 12, 12, 3), np.uint8).repeat(40, 1).repeat(40, 2)
        self.frames = [zlib.compress(picture.tobytes()) for picture in pictures]
        self.joints = generator.normal(size=(length, 7)).cumsum(0)


class Synchronized(Dataset):
    """Samples of a picture, the joints and the four commands that follow."""

    def __init__(self, recordings):
        self.recordings = recordings
        self.index = [(number, step) for number in range(len(recordings)) for step in range(36)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, index):
        number, step = self.index[index]
        recording = self.recordings[number]
        picture = np.frombuffer(zlib.decompress(recording.frames[step]), np.uint8).reshape(480, 480, 3)
        picture = torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255
        small = nn.functional.interpolate(picture.unsqueeze(0), size=(48, 48), mode="bilinear", antialias=True)[0]
        joints = torch.tensor(recording.joints[step : step + 5], dtype=torch.float32)
        return small, joints[0], (joints[1:] - joints[:1]).flatten()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten())
        self.act = nn.Sequential(nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, 28))

    def forward(self, pictures, joints):
        return self.act(torch.cat([self.see(pictures), joints], 1))


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    torch.manual_seed(0)
    loader = DataLoader(Synchronized([Recording(generator) for _ in range(3)]), 12, shuffle=True)
    policy = Policy()
    policy(torch.zeros(1, 3, 48, 48), torch.zeros(1, 7))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(6):
        for pictures, joints, commands in loader:
            loss = nn.functional.l1_loss(policy(pictures, joints), commands)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
