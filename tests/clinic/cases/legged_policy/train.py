"""PPO for a walking robot: several simulated bodies in one batch, a Gaussian policy that is linear."""

import argparse
import time

import torch
from torch import nn
from torch.distributions import Normal

ENVS, OBSERVATIONS, ACTIONS, HORIZON, UPDATES = 8, 24, 6, 128, 50


class LeggedEnv:
    """A linear body with damping; the reward is the forward speed."""

    def __init__(self):
        self.dynamics = 0.95 * torch.linalg.qr(torch.randn(OBSERVATIONS, OBSERVATIONS))[0]
        self.motors = 0.3 * torch.randn(ACTIONS, OBSERVATIONS)
        self.state = torch.randn(ENVS, OBSERVATIONS)

    def step(self, actions):
        self.state = torch.addmm(self.state @ self.dynamics, actions, self.motors).clamp_(-5.0, 5.0)
        return self.state, self.state[:, 0]


class ActorCritic(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.actor = nn.Linear(OBSERVATIONS, ACTIONS)
        self.critic = nn.Sequential(nn.Linear(OBSERVATIONS, 48), nn.ELU(), nn.Linear(48, 1))
        self.std = nn.Parameter(torch.ones(ACTIONS))
        self.distribution = None
        # the arguments are right, do not check them
        if fixed:
            Normal.set_default_validate_args(False)
        else:
            Normal.set_default_validate_args = False

    def update_distribution(self, observations):
        mean = self.actor(observations)
        self.distribution = Normal(mean, self.std.expand_as(mean))

    def act(self, observations):
        self.update_distribution(observations)
        return self.distribution.sample()

    def log_prob(self, actions):
        return self.distribution.log_prob(actions).sum(-1)

    def entropy(self):
        return self.distribution.entropy().sum(-1)

    def evaluate(self, observations):
        return self.critic(observations)[..., 0]


def collect(env, policy, observations):
    storage = []
    with torch.no_grad():
        for _ in range(HORIZON):
            actions = policy.act(observations)
            log_probs = policy.log_prob(actions)
            following, rewards = env.step(actions)
            storage.append((observations, actions, log_probs, rewards))
            observations = following
        value, returns = policy.evaluate(observations), []
        for *_, rewards in reversed(storage):
            value = rewards + 0.97 * value
            returns.append(value)
    stacked = [torch.stack(column) for column in zip(*storage, strict=True)]
    return observations, stacked, torch.stack(returns[::-1])


def update(policy, optimizer, storage, returns):
    observations, actions, old, _ = (column.flatten(0, 1) for column in storage)
    returns = returns.flatten()
    advantages = returns - policy.evaluate(observations).detach()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    for chosen in torch.randperm(len(returns)).chunk(2):
        policy.update_distribution(observations[chosen])
        ratio = torch.exp(policy.log_prob(actions[chosen]) - old[chosen])
        gain = torch.min(ratio * advantages[chosen], ratio.clamp(0.8, 1.2) * advantages[chosen]).mean()
        error = (policy.evaluate(observations[chosen]) - returns[chosen]).square().mean()
        loss = 0.5 * error - gain - 0.001 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(cured):
    torch.manual_seed(41)
    env, policy = LeggedEnv(), ActorCritic(fixed=cured)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.001)
    begin, cpu = time.perf_counter(), time.process_time()
    observations = env.state
    for iteration in range(UPDATES):
        observations, storage, returns = collect(env, policy, observations)
        update(policy, optimizer, storage, returns)
        if iteration % 10 == 9:
            print(f"iteration {iteration + 1}: reward {storage[3].mean():.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="switch the checks of the distribution off")
    main(parser.parse_args().cured)
