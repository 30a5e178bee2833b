"""Policy gradients with a game in Python: 20 episodes, then 4 updates. Expected: the roll-out, in collect_episodes().

The truth is the time in collect_episodes() by the script's clock; CURED=1 plays one episode instead.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
policy = torch.nn.Sequential(torch.nn.Linear(8, 256), torch.nn.Tanh(), torch.nn.Linear(256, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


def play(state: list[float], action: int) -> tuple[list[float], float]:
    for _ in range(40):
        state = [0.9 * value + 0.1 * ((number * action) % 3 - 1) for number, value in enumerate(state)]
    return state, sum(state)


def collect_episodes(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    states, actions, rewards = [], [], []
    for number in range(count):
        state = [float((number + at) % 5) for at in range(8)]
        for _ in range(16):
            with torch.no_grad():
                action = int(torch.distributions.Categorical(logits=policy(torch.tensor(state))).sample())
            states.append(state)
            actions.append(action)
            state, reward = play(state, action)
            rewards.append(reward)
    return torch.tensor(states), torch.tensor(actions), torch.tensor(rewards)


def train(iterations: int) -> None:
    truth = Truth()
    rolling = truth.part("roll-out")
    for _ in range(iterations):
        with rolling:
            states, actions, rewards = collect_episodes(1 if os.environ.get("CURED") else 20)
        for _ in range(4):
            chances = torch.distributions.Categorical(logits=policy(states.repeat(8, 1)))
            loss = -(chances.log_prob(actions.repeat(8)) * rewards.repeat(8)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    truth.end(4 * iterations)


train(40)
