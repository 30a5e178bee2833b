"""Learn to keep a ball in place with a deep Q network and a replay buffer."""

import copy
import time

import numpy as np
import torch
from torch import nn


def push(state, action, generator):
    """Push a ball in the wind to the left or to the right; outside it is lost and starts anew."""
    place, speed = state[0] + 0.02 * state[1], 0.99 * state[1] + (0.3 if action else -0.3) + 0.1 * generator.randn()
    is_lost = abs(place) > 1.0
    return (generator.uniform(-0.1, 0.1, 2) if is_lost else np.array([place, speed])), is_lost


class ReplayBuffer:
    """Begins with moves that were recorded before."""

    def __init__(self, recorded, capacity, generator):
        self.states = generator.uniform(-1, 1, (2, capacity, 2)).astype(np.float32)
        self.actions, self.ends = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
        self.capacity, self.size, self.place, self.generator = capacity, recorded, recorded, generator

    def add(self, state, action, following, end):
        self.states[:, self.place] = state, following
        self.actions[self.place], self.ends[self.place] = action, end
        self.place = (self.place + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, count):
        rows = self.generator.choice(self.size, size=count, replace=False)
        return [torch.from_numpy(column) for column in (*self.states[:, rows], self.actions[rows], self.ends[rows])]


class Agent:
    def __init__(self):
        self.q = nn.Sequential(nn.Linear(2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2))
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=2.5e-4)

    def learn(self, states, following, actions, ends):
        with torch.no_grad():
            wanted = 1.0 + 0.99 * self.target(following).amax(1) * (1.0 - ends)
        guess = self.q(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = nn.functional.mse_loss(guess, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    generator = np.random.RandomState(0)
    agent = Agent()
    buffer = ReplayBuffer(60_000, 100_000, generator)
    state = np.zeros(2)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(1000):
        with torch.no_grad():
            action = int(agent.q(torch.as_tensor(state, dtype=torch.float32)).argmax())
        following, end = push(state, action, generator)
        buffer.add(state, action, following, end)
        state = following
        agent.learn(*buffer.sample(128))
        if step % 250 == 0:
            agent.target.load_state_dict(agent.q.state_dict())
            print(f"step {step}: place {state[0]:.2f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
