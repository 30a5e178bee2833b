"""Train a click model and watch its area under the curve with torchmetrics."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, BinaryCalibrationError


class Fit:
    """The loop, with its metrics."""

    def __init__(self, model, per_batch):
        self.model, self.per_batch = model, per_batch
        self.optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
        self.metrics = MetricCollection([BinaryAUROC(), BinaryAveragePrecision(), BinaryCalibrationError(n_bins=20)])

    def batch(self, fields, clicked):
        logits = self.model(fields).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, clicked.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        scores = logits.detach().sigmoid()
        if self.per_batch:
            self.metrics(scores, clicked)
        else:
            self.metrics.update(scores, clicked)

    def epoch(self, loader):
        for fields, clicked in loader:
            self.batch(fields, clicked)
        print({name: round(value.item(), 4) for name, value in self.metrics.compute().items()})
        self.metrics.reset()


parser = argparse.ArgumentParser()
parser.add_argument("--cured", action="store_true", help="compute the metrics at the end of an epoch only")
torch.manual_seed(4)
model = nn.Sequential(nn.Embedding(1200, 16), nn.Flatten(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 1))
fit = Fit(model, per_batch=not parser.parse_args().cured)
fields = torch.randint(0, 200, (16000, 6))
clicked = (fields.sum(1) + 100 * torch.randn(len(fields)) > 600).long()
shown = TensorDataset(fields + 200 * torch.arange(6), clicked)
loader = DataLoader(shown, batch_size=128, shuffle=True)
begin, cpu = time.perf_counter(), time.process_time()
for _ in range(2):
    fit.epoch(loader)
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
