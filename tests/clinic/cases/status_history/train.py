"""Search over small forecasters; each worker keeps a status file that the scheduler reads."""

import json
import os
import sys
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


class Progress:
    def __init__(self, folder):
        self.folder = folder
        self.batches = 0
        self.updates = 0

    def updated(self, losses, seconds):
        self.updates += 1
        write_status(
            self.folder, "training", batches=self.batches, updates=self.updates, loss=sum(losses) / len(losses),
            batch_seconds=seconds,
        )  # fmt: skip


def main():
    torch.manual_seed(5)
    folder = Path("worker-0")
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    net = nn.Sequential(nn.Conv1d(4, 16, 5, padding=2), nn.GELU(), nn.Conv1d(16, 16, 5, padding=2), nn.GELU())
    net.append(nn.Conv1d(16, 4, 5, padding=2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    progress = Progress(folder)
    begin, cpu = time.perf_counter(), time.process_time()
    write_status(folder, "started")
    for _ in range(420):
        losses, start = [], time.perf_counter()
        for _ in range(2):
            series = torch.randn(4, 4, 65).cumsum(-1) / 10
            loss = (net(series[..., :-1]) - series[..., 1:]).abs().mean() / 2
            loss.backward()
            losses.append(float(loss.detach()))
            progress.batches += 1
        optimizer.step()
        optimizer.zero_grad()
        progress.updated(losses, time.perf_counter() - start)
    write_status(folder, "finished")
    print(f"loss {losses[-1]:.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
