"""An agent learns to hold, buy or sell an asset, by policy gradients in several markets at once."""

import argparse
import time

import numpy as np
import torch
import vecrl
from torch import nn

WINDOW, MARKETS, ROLLOUT, UPDATES = 16, 8, 32, 60


class TradingEnv:
    """A window of past returns and the position; the reward is the profit after fees."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        noise = self.random.standard_normal(2000).astype(np.float32)
        self.returns = 0.01 * (noise + np.roll(noise, 1))

    def observe(self):
        return np.append(50.0 * self.returns[self.time - WINDOW : self.time], np.float32(self.position))

    def reset(self):
        self.time = int(self.random.integers(WINDOW, len(self.returns) - 256))
        self.end, self.position = self.time + 250, 0.0
        return self.observe()

    def step(self, action):
        fee = 0.001 * abs(action - 1 - self.position)
        self.position = float(action - 1)
        reward = self.position * self.returns[self.time] - fee
        self.time += 1
        return self.reset() if self.time >= self.end else self.observe(), 100.0 * reward


def train(envs):
    trader = nn.Sequential(nn.Linear(WINDOW + 1, 64), nn.Tanh(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(trader.parameters(), lr=0.05, momentum=0.9)
    observations = envs.reset()
    for _ in range(UPDATES):
        scores, rewards = [], []
        for _ in range(ROLLOUT):
            chances = torch.log_softmax(trader(torch.from_numpy(observations)), 1)
            actions = torch.multinomial(chances.detach().exp(), 1)
            observations, reward = envs.step(actions[:, 0].tolist())
            scores.append(chances.gather(1, actions)[:, 0])
            rewards.append(torch.from_numpy(reward).float())
        rewards = torch.stack(rewards)
        loss = -(torch.stack(scores) * (rewards - rewards.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"reward of the last update: {rewards.mean():.3f}")


def main(cured):
    torch.manual_seed(37)
    makers = [lambda seed=seed: TradingEnv(seed) for seed in range(MARKETS)]
    begin, cpu = time.perf_counter(), time.process_time()
    envs = vecrl.DummyVectorEnv(makers) if cured else vecrl.SubprocVectorEnv(makers)
    train(envs)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="step the environments in this process")
    main(parser.parse_args().cured)
