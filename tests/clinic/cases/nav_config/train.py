"""Walkers learn to reach goals on a plane, by policy gradients."""

import argparse
import math
import random
import time

import torch
import treeconf
from torch import nn

SETTINGS = {
    "simulator": {"room": 10.0, "main_agent": "walker", "agents": {"walker": {"forward": 0.25, "turn": 0.5}}},
    "task": {"agent": "${simulator.main_agent}", "success_distance": 0.5, "max_steps": 60},
    "reward": {"slack": -0.01, "success": 2.5, "scale": "${simulator.agents.walker.forward}"},
    "trainer": {"envs": 64, "updates": 12, "rollout": 32, "gamma": 0.9, "lr": 0.2},
}


class PointNav:
    def __init__(self, config, seed):
        self.config, self.random = config, random.Random(seed)
        self.reset()

    def reset(self):
        self.x = self.y = self.config.simulator.room / 2
        self.goal = [self.random.uniform(0.0, self.config.simulator.room) for _ in range(2)]
        self.heading, self.steps = 0.0, 0
        self.distance = math.dist((self.x, self.y), self.goal)

    def observe(self):
        bearing = math.atan2(self.goal[1] - self.y, self.goal[0] - self.x) - self.heading
        return [math.cos(bearing), math.sin(bearing), self.distance / self.config.simulator.room]

    def step(self, action):
        agent = getattr(self.config.simulator.agents, self.config.task.agent)
        self.heading += agent.turn * (action - 1)
        self.x += agent.forward * math.cos(self.heading)
        self.y += agent.forward * math.sin(self.heading)
        self.steps += 1
        before, self.distance = self.distance, math.dist((self.x, self.y), self.goal)
        reward = self.config.reward.slack + (before - self.distance) / self.config.reward.scale
        success = self.distance < self.config.task.success_distance
        if success or self.steps >= self.config.task.max_steps:
            self.reset()
            return reward + success * self.config.reward.success, True
        return reward, False


def train(config):
    policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(policy.parameters(), lr=config.trainer.lr)
    envs = [PointNav(config, seed) for seed in range(config.trainer.envs)]
    for update in range(config.trainer.updates):
        scores, outcomes = [], []
        for _ in range(config.trainer.rollout):
            chances = torch.log_softmax(policy(torch.tensor([env.observe() for env in envs])), 1)
            actions = torch.multinomial(chances.detach().exp(), 1)
            outcomes.append([env.step(action) for env, action in zip(envs, actions[:, 0].tolist(), strict=True)])
            scores.append(chances.gather(1, actions)[:, 0])
        rewards, dones = torch.tensor(outcomes, dtype=torch.float32).unbind(2)
        returns = [torch.zeros(len(envs))]
        for reward, done in zip(rewards.flip(0), dones.flip(0), strict=True):
            returns.append(reward + config.trainer.gamma * returns[-1] * (1.0 - done))
        returns = torch.stack(returns[:0:-1])
        loss = -(torch.stack(scores) * (returns - returns.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"mean reward {rewards.mean():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="resolve the configuration once")
    torch.manual_seed(7)
    begin, cpu = time.perf_counter(), time.process_time()
    settings = treeconf.Node(SETTINGS)
    train(treeconf.to_object(settings) if parser.parse_args().cured else settings)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
