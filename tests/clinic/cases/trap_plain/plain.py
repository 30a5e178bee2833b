"""A training loop at the level of the module, as in a notebook.
`--ill` makes it ill, `--cured` has the same work without the illness; without either it is healthy.
"""

import argparse
import gc
import logging
import os
import tempfile
import threading
import time

import torch
import torch.nn.functional as F
import torch.utils.data as data

parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[])
parser.add_argument("--cured", action="append", default=[])
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()
ill = set(args.ill)
cases = ill | set(args.cured)
is_remote = bool(cases & {"no-workers", "too-few-workers"})
torch.manual_seed(0)
torch.set_num_threads(1 if "more-threads-than-cores" not in cases else 16 if ill else len(os.sched_getaffinity(0)))
folder = tempfile.TemporaryDirectory()
logging.basicConfig(filename=f"{folder.name}/train.log", level=logging.INFO)


class Points(data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        if is_remote:
            time.sleep(0.0008)  # ill: sleep
        if "slow-dataset-item" in ill:
            row = torch.tensor([max(-1.0, min(1.0, value)) for value in row.tolist()])  # ill: slow-dataset-item
        elif "slow-dataset-item" in cases:
            row = row.clamp(-1.0, 1.0)
        return row, index % 10


def stack(items):
    if "slow-collate" in ill:
        rows = torch.zeros(len(items), 256)
        for i, (row, _) in enumerate(items):
            for j in range(0, 256, 4):
                rows[i, j : j + 4] = row[j : j + 4]  # ill: slow-collate
        return rows, torch.tensor([label for _, label in items])
    return data.default_collate(items)


def poll():
    total = 0
    while True:
        total += total * 3 % 7  # ill: thread-holds-gil


wide = torch.float64 if "float64" in ill else torch.float32
rows = torch.randn(64 * 6, 256, dtype=wide)
labels = torch.arange(len(rows)) % 10
held_out = torch.randn(1024, 256, dtype=wide)
mixing = torch.randn(500, 16, 16)
if cases & {"no-workers", "slow-dataset-item", "slow-collate", "too-few-workers", "workers-started-anew"}:
    workers = 2 if "workers-started-anew" in cases else 0
    if is_remote:
        workers = {"no-workers": 0, "too-few-workers": 1}[min(ill)] if ill else 6
    keep = workers > 0 and "workers-started-anew" not in ill
    size = 256 if "workers-started-anew" in cases else 4096
    batches = data.DataLoader(  # ill: loader
        Points(torch.randn(size, 256)), 16, num_workers=workers, persistent_workers=keep, collate_fn=stack
    )
elif "float64" in cases:
    batches = [(rows, labels)] * 4
elif cases & {"single-tensor-optimizer", "zero-filled-gradients"}:
    batches = [(rows[:16], labels[:16])] * 4
elif "debug-mode" in cases:
    batches = [(rows[:8], labels[:8])] * 4
else:
    batches = [(rows[:64], labels[:64])] * 4
if "thread-holds-gil" in ill:
    threading.Thread(target=poll, daemon=True).start()

width = 2048 if "zero-filled-gradients" in cases else 512
net = torch.nn.Sequential(
    torch.nn.Linear(256, width),
    torch.nn.ReLU(),
    torch.nn.Linear(width, width),
    torch.nn.ReLU(),
    torch.nn.Linear(width, 10),
).to(wide)
if "single-tensor-optimizer" in cases:
    fast = {"fused": True} if "single-tensor-optimizer" not in ill else {"foreach": False}
    sgd = torch.optim.Adam(net.parameters(), 1e-4, **fast)  # ill: single-tensor-optimizer
else:
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
if "unused-gradients" in cases:
    teacher = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 10))
fills = "zero-filled-gradients" in ill
torch.autograd.set_detect_anomaly("debug-mode" in ill)
step, warm, begin = 0, args.steps // 5, 0.0
while step < args.steps:
    for x, y in batches:  # ill: batches
        out = net(x)
        loss = F.cross_entropy(out, y)
        if "unused-gradients" in cases:
            with torch.set_grad_enabled("unused-gradients" in ill):
                wanted = teacher(x)
            loss = loss + F.mse_loss(out, wanted)
        sgd.zero_grad(set_to_none=not fills)  # ill: zero-filled-gradients
        loss.backward()  # ill: unused-gradients
        sgd.step()
        step += 1
        if "python-loop" in ill:
            counts = {}
            for number in range(25_000):  # ill: python-loop-head
                key = number * 7 % 97  # ill: python-loop-key
                counts[key] = counts.get(key, 0) + 1  # ill: python-loop
        if "many-small-operators" in ill:
            mixed = [matrix.tanh() @ matrix for matrix in mixing]  # ill: many-small-operators
        elif "many-small-operators" in cases:
            mixed = mixing.tanh() @ mixing
        if "garbage-collection" in ill and step % 10 == 0:
            gc.collect()  # ill: garbage-collection
        if "logging-in-loop" in ill:
            for part in range(200):
                logging.info("step %d part %d loss %.6f", step, part, loss)  # ill: logging-in-loop
        if "synchronous-checkpoint" in ill and step % 2 == 0:
            torch.save(net.state_dict(), f"{folder.name}/net.pt")  # ill: synchronous-checkpoint
        if "frequent-evaluation" in cases and step % (4 if "frequent-evaluation" in ill else 200) == 0:
            net.eval()
            with torch.no_grad():
                for _ in range(3):
                    net(held_out)  # ill: frequent-evaluation
            net.train()
        if step == warm:
            begin, cpu = time.perf_counter(), time.process_time()
        if step == args.steps:
            break
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
