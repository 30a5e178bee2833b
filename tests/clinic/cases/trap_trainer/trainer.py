"""A trainer of a small classifier, with a class for each part.
`--ill` makes it ill, `--cured` has the same work without the illness; without either it is healthy.
"""

import argparse
import gc
import logging
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate


class Vectors(Dataset):
    """Random vectors with a label; `work` is done for each item."""

    def __init__(self, size, work):
        generator = torch.Generator().manual_seed(1)
        self.data = torch.randn(size, 256, generator=generator)
        self.labels = torch.randint(0, 10, (size,), generator=generator)
        self.work = work

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):  # ill: item
        return self.work(self.data[index]), self.labels[index]  # ill: item


def plain(vector):
    return vector


def augment(vector):
    image = vector.reshape(1, 1, 16, 16)
    for _ in range(6):
        image = nn.functional.avg_pool2d(image, 3, 1, 1) + 0.01  # ill: slow-item
    return image.reshape(256)


def normalize_slowly(vector):
    values = vector.tolist()
    mean = sum(values) / len(values)
    return torch.tensor([(value - mean) * 0.5 for value in values])  # ill: slow-dataset-item


def normalize(vector):
    return (vector - vector.mean()) * 0.5


def fetch(vector):
    time.sleep(0.002)  # ill: too-few-workers
    return vector


def collate_slowly(items):
    rows = [[float(value) for value in vector] for vector, _ in items]  # ill: slow-collate
    return torch.tensor(rows), torch.stack([label for _, label in items])


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def adam_one_by_one(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)  # ill: single-tensor-optimizer


def fused_adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


class Reporter:
    """Writes what a step did."""

    def __init__(self, folder, every, lines):
        self.logger = logging.getLogger("trainer")
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO)
        self.logger.addHandler(logging.FileHandler(folder / "log.txt"))
        self.every, self.lines = every, lines

    def report(self, step, loss):
        if step % self.every == 0:
            for number in range(self.lines):
                self.logger.info("step %d part %d loss %.6f", step, number, loss)  # ill: logging-in-loop


class Spinner(threading.Thread):
    """Counts words for a live statistic."""

    def __init__(self):
        super().__init__(daemon=True)
        self.counts = {}

    def run(self):
        while True:
            for word in ("loss", "step", "token"):
                self.counts[word] = self.counts.get(word, 0) + 1  # ill: thread-holds-gil


class Trainer:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        torch.manual_seed(0)
        dtype = torch.float64 if options["double"] else torch.float32
        width = options["width"]
        layers = [nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
        self.model = nn.Sequential(*layers).to(dtype)
        self.dtype = dtype
        self.optimizer = options["optimizer"](self.model.parameters())
        self.criterion = nn.CrossEntropyLoss()
        self.loader = self.make_loader(options["epoch"] * options["batch"])
        self.validation = DataLoader(Vectors(20 * 64, plain), batch_size=64)
        self.reporter = Reporter(folder, options["log_every"], options["log_lines"])
        self.rubbish = [[number] for number in range(3_000)] if options["collect"] else []
        self.history = []

    def make_loader(self, size):
        options = self.options
        workers = options["workers"]
        more = {"persistent_workers": options["persistent"], "prefetch_factor": 2} if workers else {}
        dataset = Vectors(size, options["work"])
        return DataLoader(  # ill: loader
            dataset, options["batch"], num_workers=workers, collate_fn=options["collate"], **more
        )

    def validate(self):
        if self.options["evaluation_mode"]:
            self.model.eval()
        with torch.no_grad():
            losses = [self.criterion(self.model(x.to(self.dtype)), y) for x, y in self.validation]  # ill: validate
        self.model.train()
        return sum(losses) / len(losses)

    def spread(self, inputs):
        values = inputs.flatten().tolist()
        total = 0.0
        for value in values:
            total += abs(value) * 0.5 if value > 0 else abs(value)  # ill: python-loop
        return total / len(values)

    def small_products(self, outputs):
        total = outputs.sum() * 0
        for part in outputs.split(1):
            total = total + (part * part).mean().sqrt().clamp(max=10.0)  # ill: many-small-operators
        return total

    def finish_step(self, step, loss, inputs):
        options = self.options
        if options["python"]:
            self.history.append(self.spread(inputs))
        if options["collect"] and step % 4 == 0:
            gc.collect()  # ill: garbage-collection
        if options["pause"]:
            time.sleep(options["pause"])  # ill: blocked-thread
        self.reporter.report(step, loss.item())
        if step % options["save_every"] == 0:
            torch.save(self.model.state_dict(), self.folder / "model.pt")  # ill: synchronous-checkpoint
        if step % options["validate_every"] == 0:
            self.validate()  # ill: frequent-evaluation

    def batches(self):
        while True:
            yield from self.loader

    def fit(self, steps):
        warm, began = steps // 5, 0.0
        for step, (inputs, labels) in enumerate(self.batches(), 1):
            if step == warm:
                began, cpu = time.perf_counter(), time.process_time()
            outputs = self.model(inputs.to(self.dtype))
            loss = self.criterion(outputs, labels)
            if self.options["small"]:
                loss = loss + 0.001 * self.small_products(outputs)
            self.optimizer.zero_grad(set_to_none=not self.options["fill"])  # ill: zero-filled-gradients
            loss.backward()
            self.optimizer.step()
            self.finish_step(step, loss, inputs)
            if step == steps:
                break
        print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


HEALTHY = {
    "width": 512, "batch": 64, "epoch": 100, "work": plain, "collate": default_collate, "workers": 0,
    "persistent": True, "double": False, "log_every": 100, "log_lines": 1, "save_every": 10**9,
    "validate_every": 10**9, "evaluation_mode": True, "python": False, "collect": False, "pause": 0.0, "small": False,
    "threads": 1, "anomaly": False, "spinner": False,
    "optimizer": sgd, "fill": False,
}  # fmt: skip
CASES = {
    "no-workers": ({"work": augment, "workers": 0}, {"work": augment, "workers": 1}),
    "slow-dataset-item": ({"work": normalize_slowly}, {"work": normalize}),
    "slow-collate": ({"collate": collate_slowly}, {}),
    "too-few-workers": ({"work": fetch, "workers": 1, "batch": 16}, {"work": fetch, "workers": 8, "batch": 16}),
    "needless-workers": ({"workers": 2, "batch": 8, "width": 64}, {"workers": 0, "batch": 8, "width": 64}),
    "workers-started-anew": ({"workers": 1, "persistent": False, "epoch": 8}, {"workers": 1, "epoch": 8}),
    "python-loop": ({"python": True}, {}),
    "many-small-operators": ({"small": True}, {}),
    "thread-holds-gil": ({"spinner": True}, {}),
    "more-threads-than-cores": ({"threads": 16}, {"threads": len(os.sched_getaffinity(0))}),
    "garbage-collection": ({"collect": True}, {}),
    "blocked-thread": ({"pause": 0.004}, {}),
    "logging-in-loop": ({"log_every": 1, "log_lines": 200}, {"log_every": 100, "log_lines": 200}),
    "synchronous-checkpoint": ({"save_every": 2}, {"save_every": 200}),
    "frequent-evaluation": ({"validate_every": 10}, {"validate_every": 500}),
    "periodic-work": ({"validate_every": 10, "evaluation_mode": False}, {"validate_every": 500}),
    "float64": ({"double": True}, {}),
    "single-tensor-optimizer": (
        {"optimizer": adam_one_by_one, "width": 768, "batch": 16},
        {"optimizer": fused_adam, "width": 768, "batch": 16},
    ),
    "zero-filled-gradients": ({"fill": True, "width": 1536, "batch": 16}, {"width": 1536, "batch": 16}),
    "debug-mode": ({"anomaly": True, "batch": 4, "width": 32, "small": True}, {"batch": 4, "width": 32, "small": True}),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ill", action="append", default=[], choices=CASES)
    parser.add_argument("--cured", action="append", default=[], choices=CASES)
    arguments = parser.parse_args()
    options = dict(HEALTHY)
    for name in arguments.cured:
        options.update(CASES[name][1])
    for name in arguments.ill:
        options.update(CASES[name][0])
    torch.set_num_threads(options["threads"])
    torch.autograd.set_detect_anomaly(options["anomaly"])
    if options["spinner"]:
        Spinner().start()
    with tempfile.TemporaryDirectory() as folder:
        Trainer(options, Path(folder)).fit(arguments.steps)


if __name__ == "__main__":
    main()
