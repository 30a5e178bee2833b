"""Two optimizers: the discriminator steps twice for each step of the generator."""

import sys

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 32))
critic = nn.Sequential(nn.Linear(32, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.5, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.5, 0.9))
real = torch.randn(4096, 32) * 0.5 + 1.0
for _step in range(steps):
    for _ in range(2):
        batch = real[torch.randint(0, len(real), (128,))]
        fake = generator(torch.randn(128, 16)).detach()
        of_critic.zero_grad()
        loss = critic(fake).mean() - critic(batch).mean()
        loss.backward()
        of_critic.step()
    of_generator.zero_grad()
    goal = -critic(generator(torch.randn(128, 16))).mean()
    goal.backward()
    of_generator.step()
print(f"critic {loss.item():.6f} generator {goal.item():.6f}")
