"""Proximal policy optimization of an agent in many copies of a small world: a roll-out, then epochs of updates.

`--ill` computes the advantages element by element, `--cured` for all worlds at once; without either it is healthy too:
the roll-out is needed, though it makes every 16th step longer.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

WORLDS, LENGTH, EPOCHS, PARTS = 64, 32, 4, 4


class Pendulums:
    """Pendulums that are pushed to the left or to the right, all moved by one call."""

    def __init__(self):
        self.random = np.random.default_rng(0)
        self.angle, self.speed = self.random.uniform(-1, 1, (2, WORLDS))

    def observe(self):
        return np.stack([np.sin(self.angle), np.cos(self.angle), self.speed], axis=1).astype(np.float32)

    def step(self, pushes):
        self.speed = np.clip(self.speed + 0.1 * np.sin(self.angle) + 0.05 * (2 * pushes - 1), -2, 2)
        self.angle = self.angle + 0.1 * self.speed
        has_fallen = np.abs(self.angle) > 3
        self.angle[has_fallen], self.speed[has_fallen] = 0.1, 0.0
        return np.cos(self.angle), has_fallen


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.policy, self.value = nn.Linear(256, 2), nn.Linear(256, 1)

    def forward(self, observed):
        states = self.body(observed)
        return torch.distributions.Categorical(logits=self.policy(states)), self.value(states).squeeze(-1)


@torch.no_grad()
def roll_out(world, agent):
    rows = []
    for _ in range(LENGTH):
        observed = torch.from_numpy(world.observe())
        choice, value = agent(observed)
        action = choice.sample()
        reward, ended = world.step(action.numpy())
        rows.append((observed, action, choice.log_prob(action), value.numpy(), reward, ended))
    return [list(column) for column in zip(*rows, strict=True)]


def advantages_one_by_one(rewards, values, ended):
    advantages = [[0.0] * WORLDS for _ in range(LENGTH)]
    for _ in range(24):  # as many discounts are compared
        for world in range(WORLDS):
            total = 0.0
            for time_step in reversed(range(LENGTH - 1)):  # ill: python-loop
                goes_on = 1.0 - ended[time_step][world]  # ill: python-loop
                change = rewards[time_step][world] + 0.99 * values[time_step + 1][world] * goes_on  # ill: python-loop
                total = change - values[time_step][world] + 0.95 * goes_on * total  # ill: python-loop
                advantages[time_step][world] = total  # ill: python-loop
    return torch.tensor(advantages)


def advantages_at_once(rewards, values, ended):
    advantages, total = np.zeros((LENGTH, WORLDS)), np.zeros(WORLDS)
    goes_on = 1.0 - np.array(ended)
    for time_step in reversed(range(LENGTH - 1)):
        change = rewards[time_step] + 0.99 * values[time_step + 1] * goes_on[time_step]
        total = change - values[time_step] + 0.95 * goes_on[time_step] * total
        advantages[time_step] = total
    return torch.from_numpy(advantages)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--ill", action="append", default=[])
parser.add_argument("--cured", action="append", default=[])
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
world, agent = Pendulums(), Agent()
adam = torch.optim.Adam(agent.parameters(), 3e-4, fused=True)
step, warm, began = 0, max(16, args.steps // 5), 0.0
while step < args.steps:
    observed, actions, old, values, rewards, ended = roll_out(world, agent)
    judge = advantages_one_by_one if "python-loop" in args.ill else advantages_at_once
    gains = judge(rewards, values, ended).float().flatten()  # ill: python-loop
    observed, actions, old = torch.cat(observed), torch.cat(actions), torch.cat(old)
    returns = gains + torch.from_numpy(np.concatenate(values))
    for part in (part for _ in range(EPOCHS) for part in torch.randperm(len(gains)).chunk(PARTS)):
        choice, value = agent(observed[part])
        ratio = (choice.log_prob(actions[part]) - old[part]).exp()
        gain = torch.minimum(ratio * gains[part], ratio.clamp(0.8, 1.2) * gains[part])
        loss = (value - returns[part]).pow(2).mean() - gain.mean() - 0.01 * choice.entropy().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        step += 1
        if step == warm:
            began, cpu = time.perf_counter(), time.process_time()
print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
