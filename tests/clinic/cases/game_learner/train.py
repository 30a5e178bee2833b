"""Learn a policy from several games that run as processes beside the learner."""

import argparse
import multiprocessing
import random
import time

import torch
from torch import nn


def play(pipe, seed, bodies=22):
    """A game: pushes bodies around in plain Python and answers each action with an observation."""
    dice = random.Random(seed)
    places = [[dice.uniform(-1, 1) for _ in range(2)] for _ in range(bodies)]
    while (action := pipe.recv()) is not None:
        for _ in range(10):
            for one in places:
                pull = [0.0, 0.0]
                for other in places:
                    dx, dy = other[0] - one[0], other[1] - one[1]
                    far = dx * dx + dy * dy + 0.1
                    pull[0] += dx / far
                    pull[1] += dy / far
                one[0] = max(-1.0, min(1.0, one[0] + 0.001 * pull[0] + 0.01 * action))
                one[1] = max(-1.0, min(1.0, one[1] + 0.001 * pull[1]))
        pipe.send(([value for place in places for value in place], -abs(places[0][0])))


class Games:
    def __init__(self, count):
        context = multiprocessing.get_context("fork")
        pairs = [context.Pipe() for _ in range(count)]
        self.pipes = [own for own, _ in pairs]
        self.processes = [
            context.Process(target=play, args=(theirs, seed), daemon=True) for seed, (_, theirs) in enumerate(pairs)
        ]
        for process in self.processes:
            process.start()

    def send(self, actions):
        for pipe, action in zip(self.pipes, actions):
            pipe.send(action)

    def receive(self):
        observations, rewards = zip(*(pipe.recv() for pipe in self.pipes))
        return torch.tensor(observations), torch.tensor(rewards)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--games", type=int, default=2)
    parser.add_argument("--updates", type=int, default=90)
    parser.add_argument("--torch-threads", type=int)
    options = parser.parse_args()
    games = Games(options.games)
    if options.torch_threads:
        torch.set_num_threads(options.torch_threads)
    torch.manual_seed(9)
    critic = nn.Sequential(nn.Linear(44, 256), nn.ELU(), nn.Linear(256, 256), nn.ELU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    memory, worth = torch.randn(4096, 44), torch.randn(4096)
    begin, cpu = time.perf_counter(), time.process_time()
    games.send([0.0] * options.games)
    for update in range(options.updates):
        chosen = torch.randint(4096, (512,))
        loss = nn.functional.mse_loss(critic(memory[chosen])[:, 0], worth[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        observations, rewards = games.receive()
        rows = slice(update * options.games, (update + 1) * options.games)
        memory[rows], worth[rows] = observations, rewards
        games.send((0.1 * torch.randn(options.games)).tolist())
    games.receive()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
