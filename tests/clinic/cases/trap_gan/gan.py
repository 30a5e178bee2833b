"""A GAN whose discriminator is trained twice as often as its generator."""

import argparse
import itertools
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[], choices=["unused-gradients"])
parser.add_argument("--cured", action="append", default=[], choices=["unused-gradients"])
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)


def network(*widths):
    layers = [(nn.Linear(*pair), nn.LeakyReLU()) for pair in itertools.pairwise(widths)]
    return nn.Sequential(*(each for pair in layers for each in pair))


generator, discriminator = network(64, 512, 1024, 784), network(784, 128, 1)
every = [torch.optim.Adam(net.parameters(), lr=1e-4, fused=True) for net in (generator, discriminator)]
images = torch.rand(2048, 784)


def train_discriminator(real):
    fake = generator(torch.randn(len(real), 64))
    if not args.ill:
        fake = fake.detach()
    loss = nn.functional.softplus(discriminator(fake)).mean() + nn.functional.softplus(-discriminator(real)).mean()
    every[1].zero_grad()
    loss.backward()  # ill: unused-gradients
    every[1].step()


warm, begin = args.steps // 5, 0.0
for step in range(1, args.steps + 1):
    for _ in range(2):
        train_discriminator(images[torch.randint(0, 2048, (64,))])
    loss = nn.functional.softplus(-discriminator(generator(torch.randn(64, 64)))).mean()
    every[0].zero_grad()
    loss.backward()
    every[0].step()
    if step == warm:
        begin, cpu = time.perf_counter(), time.process_time()
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
