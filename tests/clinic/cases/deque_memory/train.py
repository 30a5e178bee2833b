"""Learn to balance on a line with deep Q-learning from remembered moves."""

import collections
import random
import sys
import time

import numpy as np
import torch
from torch import nn

SIZE = 1_000_000
Move = collections.namedtuple("Move", "state action reward following is_last")


class Ring:
    """The last SIZE moves in a list that is overwritten from its start."""

    def __init__(self, size):
        self.size, self.moves, self.at = size, [], 0

    def append(self, move):
        if len(self.moves) < self.size:
            self.moves.append(move)
        else:
            self.moves[self.at] = move
            self.at = (self.at + 1) % self.size

    def __len__(self):
        return len(self.moves)

    def __getitem__(self, number):
        return self.moves[number]


replay = Ring(SIZE) if "--cured" in sys.argv else collections.deque([], maxlen=SIZE)


def sample_memories(amount):
    picked = [replay[number] for number in random.sample(range(len(replay)), amount)]
    columns = [np.array(column, dtype=np.float32) for column in zip(*picked)]
    return Move(*(torch.from_numpy(column) for column in columns))


def play(states, actions, rng):
    force = np.where(actions == 1, 0.1, -0.1) + rng.normal(0, 0.02, len(states))
    following = np.stack([states[:, 0] + states[:, 1], states[:, 1] + force], 1).clip(-2, 2)
    is_last = np.abs(following[:, 0]) > 1
    for move in zip(states, actions, 1 - np.abs(following[:, 0]), following, is_last):
        replay.append(Move(*move))
    following[is_last] = rng.normal(0, 0.1, (is_last.sum(), 2))
    return following


torch.manual_seed(0)
random.seed(0)
rng = np.random.default_rng(0)
online, target = (nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2)) for _ in range(2))
optimizer = torch.optim.SGD(online.parameters(), lr=0.01, momentum=0.9)
states = rng.normal(0, 0.1, (160, 2))
begin, cpu = time.perf_counter(), time.process_time()
for step in range(500):
    with torch.no_grad():
        greedy = online(torch.from_numpy(states).float()).argmax(1).numpy()
    states = play(states, np.where(rng.random(160) < 0.2, rng.integers(0, 2, 160), greedy), rng)
    batch = sample_memories(64)
    with torch.no_grad():
        aim = batch.reward + 0.95 * (1 - batch.is_last) * target(batch.following).max(1).values
    guess = online(batch.state).gather(1, batch.action.long()[:, None])[:, 0]
    loss = nn.functional.smooth_l1_loss(guess, aim)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        target.load_state_dict(online.state_dict())
        print(f"step {step + 1}: loss {loss.item():.4f}, {len(replay)} moves")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
