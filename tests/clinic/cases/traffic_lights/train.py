"""PPO for traffic lights: one policy chooses the phases of all junctions of a street."""

import argparse
import time

import torch
from torch import nn
from torch.distributions import Categorical, Distribution

STREETS, JUNCTIONS, LANES, PHASES, HORIZON, UPDATES = 8, 4, 8, 4, 64, 30


class Streets:
    """Cars queue on the lanes of each junction; a phase lets two lanes flow, and the reward is a short queue."""

    def __init__(self):
        self.arrivals = 0.5 * torch.rand(JUNCTIONS, LANES)
        self.flow = 2.0 * torch.eye(PHASES).repeat_interleave(LANES // PHASES, dim=1)
        self.queues = torch.zeros(STREETS, JUNCTIONS, LANES)

    def observe(self):
        return self.queues.flatten(1) / 10.0

    def step(self, phases):
        self.queues = (self.queues + self.arrivals - self.flow[phases]).clamp_(0.0, 20.0)
        return -self.queues.mean(dim=(1, 2))


class MultiCategoricalPolicy(nn.Module):
    """One categorical distribution for each junction."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(JUNCTIONS * LANES, 64), nn.ELU(), nn.Linear(64, JUNCTIONS * PHASES))
        self.critic = nn.Sequential(nn.Linear(JUNCTIONS * LANES, 64), nn.ELU(), nn.Linear(64, 1))

    def distributions(self, observations):
        return [Categorical(logits=logits) for logits in self.actor(observations).chunk(JUNCTIONS, dim=1)]

    def act(self, observations):
        distributions = self.distributions(observations)
        actions = torch.stack([distribution.sample() for distribution in distributions], dim=1)
        return actions, self.log_prob(distributions, actions)

    def log_prob(self, distributions, actions):
        pairs = zip(distributions, actions.unbind(1), strict=True)
        return torch.stack([distribution.log_prob(action) for distribution, action in pairs], dim=1).sum(1)

    def evaluate(self, observations):
        return self.critic(observations)[:, 0]


def collect(streets, policy):
    storage = []
    with torch.no_grad():
        for _ in range(HORIZON):
            observations = streets.observe()
            actions, log_probs = policy.act(observations)
            storage.append((observations, actions, log_probs, streets.step(actions)))
        value, returns = policy.evaluate(streets.observe()), []
        for *_, rewards in reversed(storage):
            value = rewards + 0.9 * value
            returns.append(value)
    stacked = [torch.cat(column) for column in zip(*storage, strict=True)]
    return stacked, torch.cat(returns[::-1])


def update(policy, optimizer, storage, returns):
    observations, actions, old, _ = storage
    with torch.no_grad():
        advantages = returns - policy.evaluate(observations)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    for chosen in torch.randperm(len(returns)).chunk(4):
        distributions = policy.distributions(observations[chosen])
        ratio = torch.exp(policy.log_prob(distributions, actions[chosen]) - old[chosen])
        gain = torch.min(ratio * advantages[chosen], ratio.clamp(0.8, 1.2) * advantages[chosen]).mean()
        error = (policy.evaluate(observations[chosen]) - returns[chosen]).square().mean()
        entropy = torch.stack([distribution.entropy() for distribution in distributions]).mean()
        loss = 0.05 * error - gain - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(cured):
    torch.manual_seed(41)
    if cured:
        Distribution.set_default_validate_args(False)
    streets, policy = Streets(), MultiCategoricalPolicy()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    begin, cpu = time.perf_counter(), time.process_time()
    for iteration in range(UPDATES):
        storage, returns = collect(streets, policy)
        update(policy, optimizer, storage, returns)
        if iteration % 10 == 9:
            print(f"iteration {iteration + 1}: reward {storage[3].mean():.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="switch the checks of the distributions off")
    main(parser.parse_args().cured)
