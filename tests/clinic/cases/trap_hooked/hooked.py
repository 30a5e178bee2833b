"""A classifier of small images with hooks that observe what each layer computes."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[], choices=["module-hooks"])
parser.add_argument("--cured", action="append", default=[], choices=["module-hooks"])
parser.add_argument("--steps", type=int, default=600)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
statistics = {}
features = []


def observe(name):
    def hook(module, inputs, output):
        flat = output.detach().flatten()
        median = flat.sort().values[flat.numel() // 2]  # ill: module-hooks
        statistics[name] = flat.mean().item(), flat.std().item(), median.item()  # ill: module-hooks

    return hook


def keep(module, inputs, output):
    features.append(output)


def block(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


net = nn.Sequential(block(3, 8), block(8, 16), block(16, 32), nn.Flatten(), nn.Linear(32 * 16, 10))
net[2].register_forward_hook(keep)
if args.ill:
    for number, layer in enumerate(net[:3]):
        layer.register_forward_hook(observe(number))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
images, labels = torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,))
warm, begin = args.steps // 5, 0.0
for step in range(1, args.steps + 1):
    chosen = torch.randint(0, 512, (16,))
    features.clear()
    loss = nn.functional.cross_entropy(net(images[chosen]), labels[chosen])
    loss = loss + 1e-4 * features[0].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == warm:
        begin, cpu = time.perf_counter(), time.process_time()
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
