"""Learn to balance on a line with deep Q-learning from remembered moves."""

import collections
import random
import sys
import time

import numpy as np
import torch
from torch import nn

replay = [] if "--cured" in sys.argv else collections.deque(maxlen=1_000_000)


def sample_memories(amount):
    picked = [replay[number] for number in random.sample(range(len(replay)), amount)]
    return [torch.from_numpy(np.array(column, dtype=np.float32)) for column in zip(*picked)]


def play(states, actions, rng):
    force = np.where(actions == 1, 0.1, -0.1) + rng.normal(0, 0.02, len(states))
    following = np.stack([states[:, 0] + states[:, 1], states[:, 1] + force], 1).clip(-2, 2)
    is_last = np.abs(following[:, 0]) > 1
    replay.extend(zip(states, actions, 1 - np.abs(following[:, 0]), following, is_last))
    following[is_last] = rng.normal(0, 0.1, (is_last.sum(), 2))
    return following


torch.manual_seed(0)
random.seed(0)
rng = np.random.default_rng(0)
online, target = (nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2)) for _ in range(2))
optimizer = torch.optim.SGD(online.parameters(), lr=0.01, momentum=0.9)
states = rng.normal(0, 0.1, (160, 2))
begin, cpu = time.perf_counter(), time.process_time()
for step in range(900):
    with torch.no_grad():
        greedy = online(torch.from_numpy(states).float()).argmax(1).numpy()
    states = play(states, np.where(rng.random(160) < 0.2, rng.integers(0, 2, 160), greedy), rng)
    seen, chosen, reward, then, is_last = sample_memories(64)
    with torch.no_grad():
        aim = reward + 0.95 * (1 - is_last) * target(then).max(1).values
    guess = online(seen).gather(1, chosen.long()[:, None])[:, 0]
    loss = nn.functional.smooth_l1_loss(guess, aim)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        target.load_state_dict(online.state_dict())
print(f"loss {loss.item():.4f}, {len(replay)} moves")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
