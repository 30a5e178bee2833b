"""Evaluates snapshots of the model in a process of its own."""

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 12))


def judge(jobs, answers, threads):
    """Take weights from the queue until there are none, and answer with the accuracy on all held-out rows."""
    if threads:
        torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(12_000, 96, generator=generator)
    labels = rows[:, :12].argmax(1)
    model = network().eval()
    while (job := jobs.get()) is not None:
        step, weights = job
        model.load_state_dict(weights)
        with torch.no_grad():
            right = sum((model(part).argmax(1) == kind).sum() for part, kind in zip(rows.split(64), labels.split(64)))
        answers.put((step, right.item() / len(rows)))
