"""Clone the behaviour of a robot arm: predict a chunk of actions from a camera's frame."""

import sys
import time
import zlib

import numpy as np
import torch
from datasets import Dataset as Table
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, CHUNK, EPISODES, LENGTH = 48, 25, 8, 60


def record_episodes(rng):
    """Frames as compressed bytes, and the joints' commands beside them."""
    frames, actions, episodes = [], [], []
    ramp = np.linspace(0, 255, SIZE)
    for episode in range(EPISODES):
        phase = rng.uniform(0, 6.28, 7)
        for t in range(LENGTH):
            action = np.sin(phase + 0.1 * t)
            picture = ramp[:, None] * action[0] ** 2 + ramp * action[1] ** 2 + rng.integers(0, 40, (SIZE, SIZE))
            frames.append(zlib.compress(np.stack([picture, picture / 2, picture / 3], -1).astype(np.uint8).tobytes()))
            actions.append(action.astype(np.float32).tolist())
            episodes.append(episode)
    return Table.from_dict({"camera": frames, "action": actions, "episode": episodes})


def to_torch(rows):
    """Decode the columns of some rows."""
    if "camera" in rows:
        pixels = [np.frombuffer(zlib.decompress(f), np.uint8).reshape(SIZE, SIZE, 3) for f in rows["camera"]]
        rows["camera"] = [torch.tensor(p).permute(2, 0, 1).float() / 255 for p in pixels]
    rows["action"] = [torch.tensor(a) for a in rows["action"]]
    return rows


class ActionChunks(Dataset):
    """A frame and the actions that follow it."""

    def __init__(self, table, cured):
        self.table = table.with_transform(to_torch)
        self.numbers = table.select_columns(["action"]).with_transform(to_torch) if cured else self.table

    def __len__(self):
        return EPISODES * (LENGTH - CHUNK)

    def __getitem__(self, index):
        episode, start = divmod(index, LENGTH - CHUNK)
        first = episode * LENGTH + start
        frame = self.table[first]["camera"]
        following = self.numbers[range(first, first + CHUNK)]
        return frame, torch.stack(following["action"])


class ChunkPolicy(nn.Module):
    """A small convolutional encoder and a head for the whole chunk."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.LazyLinear(CHUNK * 7)

    def forward(self, frame):
        """The commands of seven joints for each step of the chunk."""
        return self.head(self.encoder(frame)).unflatten(1, (CHUNK, 7))


def main():
    """Train the policy on the recorded episodes."""
    torch.manual_seed(5)
    table = record_episodes(np.random.default_rng(5))
    loader = DataLoader(ActionChunks(table, "--cured" in sys.argv), batch_size=8, shuffle=True)
    policy = ChunkPolicy()
    policy(torch.zeros(1, 3, SIZE, SIZE))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)

    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(3):
        for frame, actions in loader:
            loss = (policy(frame) - actions).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: error {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
