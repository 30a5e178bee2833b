"""Train a walking policy on terrain: environments in processes of their own look at the ground, the learner updates."""

import argparse
import multiprocessing
import time

import torch
from torch import nn

GRID, RAYS, STATE, ACTIONS = 160, 96, 16, 4


class TerrainEnv:
    """A body on a map of heights; it sees the map through a field of rays that turns with it."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.heights = torch.randn(GRID, GRID, generator=self.generator)
        self.lens = torch.randn(RAYS, GRID, generator=self.generator) / GRID**0.5
        self.body = torch.zeros(STATE)

    def scan(self):
        """Heights as the rays see them, smoothed by what lies around."""
        turned = self.heights.roll(int(self.body[0] * 10) % GRID, 0) + self.body[1]
        near = torch.tanh(self.lens @ turned)
        far = torch.tanh((self.heights * turned).cumsum(1) @ self.lens.T)
        return torch.cat([near.mean(1), far.mean(0)])

    def reset(self):
        self.body = torch.zeros(STATE)
        return torch.cat([self.body, self.scan()])

    def step(self, action):
        noise = 0.1 * torch.randn(STATE, generator=self.generator)
        self.body = 0.9 * self.body + action.repeat(STATE // ACTIONS) * 0.1 + noise
        view = self.scan()
        reward = self.body[0] - 0.05 * action.square().sum() - 0.1 * view.abs().mean()
        return torch.cat([self.body, view]), reward


def serve(pipe, seed, threads):
    """The life of one environment's process."""
    if threads:
        torch.set_num_threads(threads)
    env = TerrainEnv(seed)
    while (message := pipe.recv()) is not None:
        if isinstance(message, str):
            pipe.send(env.reset().numpy())
        else:
            observation, reward = env.step(torch.from_numpy(message))
            pipe.send((observation.numpy(), float(reward)))


class ParallelEnv:
    def __init__(self, count, threads):
        self.pipes, self.processes = [], []
        for seed in range(count):
            mine, theirs = multiprocessing.Pipe()
            self.processes.append(multiprocessing.Process(target=serve, args=(theirs, seed, threads), daemon=True))
            self.processes[-1].start()
            self.pipes.append(mine)

    def reset(self):
        for pipe in self.pipes:
            pipe.send("reset")
        return torch.stack([torch.from_numpy(pipe.recv()) for pipe in self.pipes])

    def step(self, actions):
        for pipe, action in zip(self.pipes, actions.numpy(), strict=True):
            pipe.send(action)
        observations, rewards = zip(*(pipe.recv() for pipe in self.pipes), strict=True)
        return torch.stack([torch.from_numpy(one) for one in observations]), torch.tensor(rewards)

    def close(self):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def collect(env, policy, observations, length):
    rows = []
    for _ in range(length):
        with torch.no_grad():
            actions = policy(observations) + 0.2 * torch.randn(len(observations), ACTIONS)
        following, rewards = env.step(actions)
        rows.append((observations, actions, rewards))
        observations = following
    return observations, [torch.stack(part) for part in zip(*rows, strict=True)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=2)
    parser.add_argument("--env-threads", type=int, default=0, help="torch threads of an environment; 0: the default")
    options = parser.parse_args()
    env = ParallelEnv(options.envs, options.env_threads)
    torch.manual_seed(9)
    policy = nn.Sequential(nn.Linear(STATE + RAYS * 2, 64), nn.ELU(), nn.Linear(64, ACTIONS))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    observations = env.reset()
    begin, cpu = time.perf_counter(), time.process_time()
    for iteration in range(1, 31):
        observations, (seen, actions, rewards) = collect(env, policy, observations, 8)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        loss = ((actions - policy(seen)).square().sum(-1) * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 10 == 0:
            print(f"iteration {iteration}: reward {rewards.mean():.4f}")
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    env.close()
    print(f"trained in {seconds:.3f} s, {cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
