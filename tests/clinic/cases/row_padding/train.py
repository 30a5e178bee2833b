"""Reinforce a small language model with answers of different lengths."""

import time

import numpy as np
import torch
from torch import nn

PAD, WORDS = 0, 300


def rollouts(generator, count):
    """Prompts, answers and a reward for each answer."""
    prompts = [generator.integers(1, WORDS, generator.integers(40, 200)).tolist() for _ in range(count)]
    answers = [generator.integers(1, WORDS, generator.integers(60, 400)).tolist() for _ in range(count)]
    rewards = [[0.0] * (len(answer) - 1) + [float(answer[-1] % 2)] for answer in answers]
    return prompts, answers, rewards


def to_tensors(prompts, answers, rewards):
    """Put prompts to the right and answers to the left of a common column."""
    left, right = max(map(len, prompts)), max(map(len, answers))
    tokens, attended, acted, gains = [], [], [], []
    for prompt, answer, reward in zip(prompts, answers, rewards, strict=True):
        row = [PAD] * (left - len(prompt)) + prompt + answer + [PAD] * (right - len(answer))
        tokens.append(row)
        attended.append([int(token != PAD) for token in row])
        acted.append([int(place < len(answer)) for place in range(right)])
        gains.append([reward[place] if place < len(reward) else 0.0 for place in range(right)])
    return torch.tensor(tokens), torch.tensor(attended), torch.tensor(acted), torch.tensor(gains)


class Policy(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.layer = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.value = nn.Linear(width, 1)

    def forward(self, tokens, attended):
        seen = (self.words(tokens) * attended.unsqueeze(-1)).cumsum(1) / attended.cumsum(1).clamp(min=1).unsqueeze(-1)
        return self.value(self.layer(seen)).squeeze(-1)


if __name__ == "__main__":
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    gathered = [rollouts(generator, 96) for _ in range(8)]
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(40):
        tokens, attended, acted, gains = to_tensors(*gathered[step % 8])
        returns = gains.flip(1).cumsum(1).flip(1)
        guess = policy(tokens, attended)[:, -acted.shape[1] :]
        loss = ((guess - returns).square() * acted).sum() / acted.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"step {step}: {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
