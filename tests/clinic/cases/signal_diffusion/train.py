"""Train a diffusion model of short signals in one dimension."""

import math
import time

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Block(nn.Module):
    def __init__(self, before, after, step_width=64):
        super().__init__()
        self.convolve = nn.Conv1d(before, after, 3, padding=1)
        self.norm = nn.GroupNorm(8, after)
        self.shift = nn.Linear(step_width, after)

    def forward(self, signal, step):
        return nn.functional.silu(self.norm(self.convolve(signal)) + self.shift(step).unsqueeze(-1))


class Unet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.rise = Block(1, width)
        self.down = nn.ModuleList([Block(width, 2 * width), Block(2 * width, 4 * width)])
        self.up = nn.ModuleList([Block(6 * width, 2 * width), Block(3 * width, width)])
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, signal, step):
        rates = torch.exp(torch.arange(32) * -math.log(1e4) / 31)
        step = torch.cat([(step.unsqueeze(1) * rates).sin(), (step.unsqueeze(1) * rates).cos()], 1)
        kept = [self.rise(signal, step)]
        for block in self.down:
            kept.append(block(nn.functional.avg_pool1d(kept[-1], 2), step))
        hidden = kept.pop()
        for block in self.up:
            hidden = block(torch.cat([nn.functional.interpolate(hidden, scale_factor=2), kept.pop()], 1), step)
        return self.out(hidden)


def velocity_loss(network, signals):
    """Mix signals with noise and ask the network for the velocity."""
    step = torch.randint(1000, (len(signals), 1, 1))
    angle = (step / 1000 + 0.008) / 1.008 * math.pi / 2
    noise = torch.randn_like(signals)
    guess = network(angle.cos() * signals + angle.sin() * noise, step.flatten().float())
    return nn.functional.mse_loss(guess, angle.cos() * noise - angle.sin() * signals)


if __name__ == "__main__":
    torch.manual_seed(0)
    network = Unet()
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.Adam(network.parameters(), lr=8e-5, betas=(0.9, 0.99))
    signals = torch.sin(torch.linspace(0, 12, 128) * (1 + torch.rand(64, 1, 1)))
    begin, cpu = time.perf_counter(), time.process_time()
    for update in range(24):
        for _ in range(2):
            loss = velocity_loss(network, signals[torch.randint(64, (32,))]) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if update % 8 == 7:
            average.update_parameters(network)
            print(f"update {update + 1}: loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
