"""Learn to reach goals from replayed episodes, some of them with the goal that was reached instead."""

import sys
import time

import numpy as np
import torch
from torch import nn

CURED, LENGTH = "--cured" in sys.argv, 50


class Episodes:
    def __init__(self, capacity, sizes):
        self.count = 0
        self.store = {key: np.zeros((capacity, LENGTH, size)) for key, size in sizes.items()}

    def add(self, episodes):
        for key, values in episodes.items():
            self.store[key][self.count : self.count + len(values)] = values
        self.count += len(values)

    def sample(self, amount, pick):
        filled = {}
        for key, values in self.store.items():
            filled[key] = values[: self.count] if CURED else values[: self.count].copy()
        return pick(filled, amount)


def relabelled(filled, amount, rng):
    episodes = rng.integers(len(filled["action"]), size=amount)
    times = rng.integers(LENGTH - 1, size=amount)
    batch = {key: values[episodes, times] for key, values in filled.items()}
    later = times + 1 + (rng.random(amount) * (LENGTH - 1 - times)).astype(int)
    swapped = rng.random(amount) < 0.8
    batch["goal"][swapped] = filled["reached"][episodes[swapped], later[swapped]]
    return {key: torch.from_numpy(values).float() for key, values in batch.items()}


def rollouts(rng, amount):
    actions = rng.normal(size=(amount, LENGTH, 4))
    reached = actions[..., :3].cumsum(1)
    sight = np.concatenate([reached, rng.normal(size=(amount, LENGTH, 22))], -1)
    return {"sight": sight, "reached": reached, "goal": np.tile(reached[:, -1:], (1, LENGTH, 1)), "action": actions}


torch.manual_seed(0)
rng = np.random.default_rng(0)
memory = Episodes(2400, {"sight": 25, "reached": 3, "goal": 3, "action": 4})
policy = nn.Sequential(nn.Linear(28, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
begin, cpu = time.perf_counter(), time.process_time()
for cycle in range(60):
    memory.add(rollouts(rng, 40))
    for _ in range(8):
        batch = memory.sample(128, lambda filled, amount: relabelled(filled, amount, rng))
        guess = policy(torch.cat([batch["sight"], batch["goal"]], 1))
        loss = nn.functional.mse_loss(guess, batch["action"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.4f}, {memory.count} episodes")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
