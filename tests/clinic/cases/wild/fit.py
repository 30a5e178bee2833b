"""An agent whose learn() collects steps of an environment in Python, then updates. Expected: roll-out or Python, in
collect_rollouts() or below it; not learn() or the script's last line.

The truth is the time in collect_rollouts() by the script's clock.
"""

import torch
from truth import Truth


class Environment:
    def __init__(self) -> None:
        self.cells = [0.0] * 2000

    def step(self, action: int) -> list[float]:
        self.cells = [cell * 0.9 + (index + action) % 7 for index, cell in enumerate(self.cells)]
        return self.cells[:16]


class Agent:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.policy = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.environment = Environment()
        self.truth = Truth()
        self.rolling = self.truth.part("rollout")

    @torch.no_grad()
    def collect_rollouts(self, steps: int) -> torch.Tensor:
        rows = [[0.0] * 16]
        for _ in range(steps):
            action = int(self.policy(torch.tensor(rows[-1])).argmax())
            rows.append(self.environment.step(action))
        return torch.tensor(rows)

    def update(self, rows: torch.Tensor) -> None:
        loss = torch.nn.functional.cross_entropy(self.policy(rows), rows.argmax(1) % 4)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def learn(self, iterations: int) -> None:
        for _ in range(iterations):
            with self.rolling:
                rows = self.collect_rollouts(64)
            for _ in range(4):
                self.update(rows)
        self.truth.end(4 * iterations)


Agent().learn(150)
