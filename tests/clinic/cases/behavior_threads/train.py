"""Train the behaviors of a simulation, each by a trainer in a thread of its own."""

import argparse
import queue
import threading
import time

import torch
from torch import nn

ROUNDS = 130


class Trainer:
    """Takes the trajectories of one behavior and improves its policy."""

    def __init__(self, inbox, observation, actions):
        self.inbox = inbox
        self.policy = nn.Sequential(nn.Linear(observation, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.head = nn.Linear(64, actions)
        self.optimizer = torch.optim.Adam([*self.policy.parameters(), *self.head.parameters()], lr=3e-4)
        self.updates = 0

    def act(self, observation):
        with torch.no_grad():
            return torch.distributions.Categorical(logits=self.head(self.policy(observation))).sample()

    def advance(self, is_waiting):
        try:
            observations, actions, returns = self.inbox.get(block=is_waiting, timeout=0.2)
        except queue.Empty:
            return
        logits = self.head(self.policy(observations))
        loss = (nn.functional.cross_entropy(logits, actions, reduction="none") * returns).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        self.inbox.task_done()


class Controller:
    """Runs the trainers, and feeds them from the simulation."""

    def __init__(self, behaviors, is_waiting):
        self.trainers = {name: Trainer(queue.Queue(), 24, actions) for name, actions in behaviors.items()}
        self.ended = threading.Event()
        self.threads = [
            threading.Thread(target=self.loop, args=(trainer, is_waiting), daemon=True)
            for trainer in self.trainers.values()
        ]

    def loop(self, trainer, is_waiting):
        while not self.ended.is_set():
            trainer.advance(is_waiting)

    def run(self, rounds):
        for thread in self.threads:
            thread.start()
        walker = self.trainers["SmallWall"]
        for _ in range(rounds):
            state, trajectory = torch.randn(32, 24), []
            for _ in range(8):
                action = walker.act(state)
                trajectory.append((state, action, torch.cos(state[:, 0] - action)))
                state = (0.9 * state + 0.1 * torch.randn(32, 24)).clamp(-3, 3)
            walker.inbox.put([torch.cat(parts) for parts in zip(*trajectory)])
        walker.inbox.join()
        self.ended.set()
        for thread in self.threads:
            thread.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(3)
    controller = Controller({"SmallWall": 4, "BigWall": 4}, options.wait)
    begin, cpu = time.perf_counter(), time.process_time()
    controller.run(ROUNDS)
    print({name: trainer.updates for name, trainer in controller.trainers.items()})
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
