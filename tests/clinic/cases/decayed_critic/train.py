"""Fit the critic of an agent to the values of a replay memory, with weight decay against overfitting."""

import sys
import time

import torch
from torch import nn

UPDATES = 2000


class Critic(nn.Module):
    def __init__(self, observed=20, acted=4, width=112):
        super().__init__()
        self.value = nn.Sequential(
            nn.Linear(observed + acted, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, state, action):
        return self.value(torch.cat([state, action], -1))[:, 0]


class Memory:
    """Transitions of a game with little to learn: the returns are mostly noise."""

    def __init__(self, size=20000):
        self.state = torch.rand(size, 20)
        self.action = torch.rand(size, 4) * 2 - 1
        self.value = torch.rand(size)

    def draw(self, count=64):
        rows = torch.randint(len(self.value), (count,))
        return self.state[rows], self.action[rows], self.value[rows]


def update(critic, optimizer, batch):
    state, action, value = batch
    loss = nn.functional.mse_loss(critic(state, action), value)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main():
    torch.manual_seed(0)
    if "--cured" in sys.argv:
        torch.set_flush_denormal(True)
    memory, critic = Memory(), Critic()
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, weight_decay=0.1)
    begin, cpu = time.perf_counter(), time.process_time()
    for number in range(UPDATES):
        loss = update(critic, optimizer, memory.draw())
        if number % 250 == 249:
            print(f"update {number + 1}: loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
