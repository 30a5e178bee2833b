"""Train a policy on recorded episodes, after the moments of its inputs are known."""

import sys
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Episodes(Dataset):
    """Frames with a compressed camera image, the state of the arm and the action."""

    def __init__(self, frames, has_images=True):
        self.has_images, draw = has_images, np.random.default_rng(0)
        rough = [
            np.cumsum(draw.integers(0, 3, (160, 160, 3), dtype=np.uint8), axis=1, dtype=np.uint8) for _ in range(8)
        ]
        self.images = [zlib.compress(image.tobytes(), 6) for image in rough]
        self.state = draw.normal(2.0, 3.0, (frames, 14)).astype(np.float32)
        self.action = draw.normal(0.0, 0.5, (frames, 7)).astype(np.float32)

    def __len__(self):
        return len(self.state)

    def __getitem__(self, index):
        numbers = {"state": torch.from_numpy(self.state[index]), "action": torch.from_numpy(self.action[index])}
        if not self.has_images:
            return numbers
        raw = zlib.decompress(self.images[index % len(self.images)])
        image = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(1, 160, 160, 3).permute(0, 3, 1, 2)
        image = nn.functional.interpolate(image.float() / 255, size=(32, 32), mode="bilinear", antialias=True)[0]
        return numbers | {"image": image}


def measure(dataset, keys=("state", "action")):
    parts = {key: [] for key in keys}
    for batch in DataLoader(dataset, batch_size=32):
        for key in keys:
            parts[key].append(batch[key])
    return {key: torch.std_mean(torch.cat(part), 0) for key, part in parts.items()}


def main():
    torch.manual_seed(0)
    episodes = Episodes(1600)
    policy = nn.Sequential(nn.Linear(3 * 32 * 32 + 14, 128), nn.ReLU(), nn.Linear(128, 7))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    known = measure(Episodes(1600, has_images=False) if "--numbers" in sys.argv else episodes)
    for _, batch in zip(range(12), DataLoader(episodes, batch_size=16, shuffle=True)):
        state, action = ((batch[key] - known[key][1]) / known[key][0] for key in known)
        loss = (policy(torch.cat((batch["image"].flatten(1), state), 1)) - action).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
