"""Healthy trainings of several models: `healthy.py --model MODEL [--steps N]`."""

import argparse
import os
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="dense")
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(64, 256, batch_first=True), nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


def attention():
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(4096, 10))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(),
        nn.LazyLinear(10),
    )  # fmt: skip


def dense(width):
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


MODELS = {
    "attention": (attention, (16, 32, 128)),
    "convolutions": (convolutions, (16, 3, 32, 32)),
    "recurrent": (Recurrent, (16, 24, 64)),
    "wide": (lambda: dense(1536), (64, 256)),
}
make, shape = MODELS.get(args.model, (lambda: dense(768), (128, 256)))
model, inputs, labels = make(), torch.randn(shape), torch.arange(shape[0]) % 10
model(inputs)
if args.model == "momentum":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
else:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
examples = TensorDataset(inputs.repeat(8, *[1] * (inputs.dim() - 1)), labels.repeat(8))
workers = 1 if args.model == "loader-with-worker" else 0
loader = DataLoader(examples, len(inputs), num_workers=workers, persistent_workers=workers > 0)
target = os.path.join(tempfile.mkdtemp(), "model.pt")
step, warm, begin = 0, args.steps // 5, 0.0
while step < args.steps:
    for x, y in loader if args.model.startswith("loader") else [(inputs, labels)] * 8:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if args.model == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step == warm:
            begin, cpu = time.perf_counter(), time.process_time()
        if args.model == "rare-log" and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        if args.model == "rare-checkpoint" and step % 150 == 0:
            torch.save(model.state_dict(), target)
        if args.model == "rare-evaluation" and step % 100 == 0:
            model.eval()
            with torch.no_grad():
                model(inputs)
            model.train()
        if step == args.steps:
            break
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
