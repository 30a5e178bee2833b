"""Train a gait policy by policy gradients in a batched simulation, with a trainer that has callbacks."""

import copy
import io
import time
from dataclasses import dataclass, field

import torch
from torch import nn

ROBOTS, STATES, ACTIONS = 32, 24, 8


class WalkerSimulation:
    """Linear dynamics with noise; the reward is for going forward with little effort."""

    def __init__(self):
        self.push = 0.2 * torch.randn(ACTIONS, STATES)
        self.decay = 0.9 * torch.linalg.qr(torch.randn(STATES, STATES))[0]
        self.state = torch.zeros(ROBOTS, STATES)

    def step(self, action):
        self.state = self.state @ self.decay + action @ self.push + 0.05 * torch.randn(ROBOTS, STATES)
        return self.state, self.state[:, 0] - 0.05 * action.square().sum(1)


@dataclass
class TrainerState:
    global_step: int = 0
    episode_reward: float = 0.0
    best_reward: float = -1e9
    log_history: list = field(default_factory=list)


class LogCallback:
    def on_step_end(self, trainer, metrics):
        trainer.state.log_history.append({"step": trainer.state.global_step} | metrics)
        if trainer.state.global_step % 100 == 0:
            print(f"iteration {trainer.state.global_step}: reward {metrics['reward/mean']:.4f}")


class ModelSaveCallback:
    """Keeps the newest checkpoint in memory, as it would be written: weights, optimizer and the trainer's state."""

    def __init__(self, every):
        self.every, self.newest = every, b""

    def on_step_end(self, trainer, metrics):
        if trainer.state.global_step % self.every:
            return
        state = copy.deepcopy(trainer.state)
        del state.__dict__["log_history"]
        content = {"policy": trainer.policy.state_dict(), "optimizer": trainer.optimizer.state_dict()}
        file = io.BytesIO()
        torch.save(content | {"state": vars(state)}, file)
        self.newest = file.getvalue()


class Trainer:
    def __init__(self, simulation, policy, callbacks):
        self.simulation, self.policy, self.callbacks = simulation, policy, callbacks
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
        self.state = TrainerState()

    def collect(self, length=4):
        """States, actions and rewards of all robots."""
        steps, state = [], self.simulation.state
        with torch.no_grad():
            for _ in range(length):
                action = self.policy(state) + 0.3 * torch.randn(ROBOTS, ACTIONS)
                following, reward = self.simulation.step(action)
                steps.append((state, action, reward))
                state = following
        return [torch.stack(part) for part in zip(*steps, strict=True)]

    def update(self, states, actions, rewards):
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        errors = (actions - self.policy(states)).square().sum(-1)
        loss = (advantages * errors).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        metrics = {f"effort/joint_{joint}": value for joint, value in enumerate(actions.abs().mean((0, 1)).tolist())}
        metrics |= {f"state/mean_{index}": value for index, value in enumerate(states.mean((0, 1)).tolist())}
        return metrics | {"loss": loss.item(), "reward/mean": rewards.mean().item(), "reward/max": rewards.max().item()}

    def learn(self, iterations):
        for _ in range(iterations):
            metrics = self.update(*self.collect())
            self.state.global_step += 1
            self.state.episode_reward = metrics["reward/mean"]
            self.state.best_reward = max(self.state.best_reward, self.state.episode_reward)
            for callback in self.callbacks:
                callback.on_step_end(self, metrics)


def main():
    torch.manual_seed(2)
    policy = nn.Sequential(nn.Linear(STATES, 64), nn.ELU(), nn.Linear(64, ACTIONS))
    trainer = Trainer(WalkerSimulation(), policy, [LogCallback(), ModelSaveCallback(every=5)])
    begin, cpu = time.perf_counter(), time.process_time()
    trainer.learn(900)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
