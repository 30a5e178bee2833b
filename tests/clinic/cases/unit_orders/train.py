"""Train the commander of a small strategy game with PPO; the number of its units differs from game to game."""

import argparse
import time

import torch
from torch import nn
from torch.distributions import Categorical

ORDERS, FEATURES = 5, 7
MOVES = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


class Skirmish:
    """Units look for the flag of their game; those that come near earn reward."""

    def __init__(self, units):
        self.places, self.flag = 6 * torch.randn(units, 2), 6 * torch.randn(2)

    def observe(self):
        way = self.flag - self.places
        return torch.cat([self.places, way, way.sign(), way.norm(dim=1, keepdim=True)], 1)

    def step(self, orders):
        before = (self.flag - self.places).norm(dim=1)
        self.places = self.places + 0.5 * MOVES[orders]
        return before - (self.flag - self.places).norm(dim=1)


class Commander(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, ORDERS), nn.Linear(width, 1)

    def forward(self, units):
        hidden = self.body(units)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)

    @torch.no_grad()
    def act(self, units):
        """Draw an order for each unit of one game."""
        logits, values = self(units)
        orders, logprobs = [], []
        for unit in range(len(units)):
            choice = Categorical(logits=logits[unit])
            order = choice.sample()
            orders.append(order)
            logprobs.append(choice.log_prob(order))
        return torch.stack(orders), torch.stack(logprobs), values

    @torch.no_grad()
    def act_together(self, games):
        """Draw the orders of all games at once."""
        logits, values = self(torch.cat(games))
        choice = Categorical(logits=logits)
        orders = choice.sample()
        return [part.split([len(game) for game in games]) for part in (orders, choice.log_prob(orders), values)]


def collect(commander, games, length, is_batched):
    """Play all games for some moves and return what the units saw, did and earned."""
    kept = []
    for _ in range(length):
        seen = [game.observe() for game in games]
        if is_batched:
            decided = list(zip(*commander.act_together(seen), strict=True))
        else:
            decided = [commander.act(units) for units in seen]
        for game, units, (orders, logprobs, values) in zip(games, seen, decided, strict=True):
            rewards = game.step(orders)
            kept.append((units, orders, logprobs, rewards - values, rewards))
    return [torch.cat(column) for column in zip(*kept, strict=True)]


def update(commander, optimizer, rollout, epochs=2, clip=0.2):
    units, orders, old, advantages, rewards = rollout
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    for _ in range(epochs):
        for rows in torch.randperm(len(units)).chunk(4):
            logits, values = commander(units[rows])
            choice = Categorical(logits=logits)
            ratio = (choice.log_prob(orders[rows]) - old[rows]).exp()
            gain = torch.min(ratio * advantages[rows], ratio.clamp(1 - clip, 1 + clip) * advantages[rows]).mean()
            loss = 0.5 * (values - rewards[rows]).square().mean() - gain - 0.01 * choice.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batched", action="store_true", help="decide for all games in one forward pass")
    options = parser.parse_args()
    torch.manual_seed(11)
    commander = Commander()
    optimizer = torch.optim.Adam(commander.parameters(), lr=3e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for iteration in range(20):
        games = [Skirmish(units=3 + number % 7) for number in range(8)]
        rollout = collect(commander, games, 16, options.batched)
        update(commander, optimizer, rollout)
        if iteration % 5 == 4:
            print(f"iteration {iteration + 1}: reward {rollout[-1].mean():.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
