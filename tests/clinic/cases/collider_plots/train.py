"""Tell Higgs bosons from background events at a collider, fold by fold."""

import sys
import tempfile
import time

import torch
from foldfit import MetricLogger, fit_folds
from torch import nn


def simulate(events):
    """Kinematic variables of both classes; the signal has a peak in the invariant mass."""
    signal = (torch.rand(events) < 0.5).float()
    momenta = torch.randn(events, 29).abs()
    momenta[:, 0] += 0.8 * signal
    mass = torch.where(signal > 0, 1.25 + 0.1 * torch.randn(events), 1.0 + 0.5 * torch.rand(events))
    return torch.column_stack([momenta, mass]), signal[:, None]


def main():
    """Train the classifier and save the curves of its losses."""
    torch.manual_seed(7)
    x, y = simulate(20_000)
    folds = list(zip(x.chunk(5), y.chunk(5), strict=True))
    model = nn.Sequential(
        nn.Linear(30, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    folder = tempfile.TemporaryDirectory()
    history = MetricLogger(folder.name, update="epoch") if "--cured" in sys.argv else MetricLogger(folder.name)

    begin, cpu = time.perf_counter(), time.process_time()
    fit_folds(
        model,
        folds,
        epochs=3,
        batch_size=128,
        optimizer=optimizer,
        loss_fn=nn.BCEWithLogitsLoss(),
        callbacks=[history],
    )
    print(f"validation loss {history.valid[-1]:.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    folder.cleanup()


if __name__ == "__main__":
    main()
