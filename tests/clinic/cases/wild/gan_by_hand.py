"""A GAN without torch.optim: two backward passes per round, updates by hand. Healthy; a step is a round.

The truth is the number of rounds.
"""

import torch
from truth import Truth

torch.manual_seed(0)
generator = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
critic = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.LeakyReLU(0.2), torch.nn.Linear(512, 1))
real = torch.randn(128, 512)


def update(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 1e-3 * parameter.grad
            parameter.grad = None


def train(rounds: int) -> None:
    truth = Truth()
    for _ in range(rounds):
        fake = generator(torch.randn(128, 64))
        (critic(fake.detach()).mean() - critic(real).mean()).backward()
        update(critic)
        (-critic(fake).mean()).backward()
        for parameter in critic.parameters():
            parameter.grad = None
        update(generator)
    truth.end(rounds)


train(200)
