"""Gradients of 4 batches are accumulated, and each epoch ends with a validation. Expected: evaluation, in validate().

No update ends where a batch ends, and the batches of the validation are no steps. The truth is the time in validate()
by the script's clock; CURED=1 validates once at the end.
"""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(128, 512), torch.nn.BatchNorm1d(512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8192, 128)
loader = DataLoader(TensorDataset(x[:4096], (x[:4096, 0] > 0).long()), batch_size=64, shuffle=True)
validation = DataLoader(TensorDataset(x[4096:], (x[4096:, 0] > 0).long()), batch_size=64)


def validate() -> float:
    model.eval()
    right = 0
    for images, labels in validation:
        with torch.no_grad():
            right += int((model(images).argmax(1) == labels).sum())
    return right / len(x)


def train_epoch() -> None:
    model.train()
    for number, (images, labels) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(images), labels) / 4
        loss.backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def main(epochs: int) -> None:
    truth = Truth()
    evaluating = truth.part("evaluation")
    for epoch in range(epochs):
        train_epoch()
        if epoch == epochs - 1 or not os.environ.get("CURED"):
            with evaluating:
                validate()
    truth.end(16 * epochs)


main(12)
