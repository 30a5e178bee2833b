"""Swing up a pendulum by learning from a pool of experience, with regular snapshots."""

import gzip
import math
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Pendulum:
    """A pendulum whose motor is too weak to lift it at once; the robot sees the last states."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        """Hang somewhere."""
        self.angle, self.speed = self.rng.uniform(-math.pi, math.pi), 0.0
        self.seen = np.zeros((24, 3), np.float32)
        return self.observe()

    def observe(self):
        """The history of what the sensors told."""
        self.seen = np.roll(self.seen, -1, 0)
        self.seen[-1] = math.cos(self.angle), math.sin(self.angle), self.speed + self.rng.normal(0, 0.01)
        return self.seen.ravel().copy()

    def step(self, torque):
        """Move for a twentieth of a second."""
        cost = math.remainder(self.angle, 2 * math.pi) ** 2 + 0.1 * self.speed**2
        self.speed = max(-8, min(8, self.speed + 0.05 * (15 * math.sin(self.angle) + 3 * torque)))
        self.angle += 0.05 * self.speed
        return self.observe(), -cost


class ReplayPool:
    """All transitions in arrays that are as large as the pool can get."""

    def __init__(self, size, width):
        self.fields = {name: np.zeros((size, n), np.float32) for name, n in (("obs", width), ("next_obs", width))}
        self.fields |= {name: np.zeros((size, 1), np.float32) for name in ("action", "reward")}
        self.count, self.saved = 0, 0

    def add(self, **transition):
        """Keep one transition."""
        for name, value in transition.items():
            self.fields[name][self.count] = value
        self.count += 1

    def sample(self, rng, batch):
        """Random transitions."""
        rows = rng.integers(0, self.count, batch)
        return {name: torch.from_numpy(values[rows]) for name, values in self.fields.items()}

    def save(self, path, only_latest):
        """Write the experience for a later run."""
        first = self.saved if only_latest else 0
        with gzip.open(path, "wb") as file:
            pickle.dump({name: values[first : self.count] for name, values in self.fields.items()}, file)
        self.saved = self.count


def main():
    """Act, learn, and write a snapshot after each episode."""
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    env, pool = Pendulum(rng), ReplayPool(10_000, 72)
    values = nn.Sequential(nn.Linear(72, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(values.parameters(), lr=1e-3)
    folder = tempfile.TemporaryDirectory()

    begin, cpu = time.perf_counter(), time.process_time()
    for episode in range(60):
        obs = env.reset()
        for _ in range(60):
            with torch.no_grad():
                action = int(values(torch.from_numpy(obs)).argmax()) if rng.random() < 0.8 else rng.integers(3)
            next_obs, reward = env.step(action - 1)
            pool.add(obs=obs, action=action, reward=reward, next_obs=next_obs)
            obs = next_obs
            if pool.count % 6 == 0:
                batch = pool.sample(rng, 64)
                with torch.no_grad():
                    target = batch["reward"] + 0.98 * values(batch["next_obs"]).amax(1, keepdim=True)
                loss = nn.functional.smooth_l1_loss(values(batch["obs"]).gather(1, batch["action"].long()), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        path = Path(folder.name) / f"snapshot_{episode}"
        torch.save(values.state_dict(), path.with_suffix(".pt"))
        pool.save(path.with_suffix(".pkl.gz"), only_latest="--cured" in sys.argv)
    print(f"loss {loss.item():.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    folder.cleanup()


if __name__ == "__main__":
    main()
