"""Search over small forecasters; each worker keeps a status file that the scheduler reads."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

CURED = "--cured" in sys.argv


def write_status(folder, phase, **metrics):
    event = {"phase": phase, "at": time.time(), **metrics}
    if CURED:
        with (folder / "status.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")
        return
    path = folder / "status.json"
    status = json.loads(path.read_text()) if path.exists() else {"worker": os.getpid(), "history": []}
    status["history"].append(event)
    status["last"] = event
    part = path.with_suffix(".part")
    with part.open("w") as file:
        json.dump(status, file, indent=2, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


torch.manual_seed(5)
folder = Path(tempfile.mkdtemp(prefix="worker-"))
net = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
begin, cpu = time.perf_counter(), time.process_time()
write_status(folder, "started")
for update in range(420):
    losses, start = [], time.perf_counter()
    for _ in range(2):
        series = torch.randn(4, 4, 65).cumsum(-1) / 10
        loss = (net(series[..., :-1]) - series[..., 1:]).abs().mean() / 2
        loss.backward()
        losses.append(float(loss.detach()))
    optimizer.step()
    optimizer.zero_grad()
    write_status(folder, "training", update=update, loss=sum(losses), seconds=time.perf_counter() - start)
write_status(folder, "finished")
print(f"loss {losses[-1]:.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
