"""A recurrent language model with updates by hand and an evaluation per epoch. Expected: evaluation, in evaluate().

Like PyTorch's word_language_model: no torch.optim and no DataLoader, so a step ends with backward(). The truth is the
time in evaluate() by the script's clock; CURED=1 evaluates once at the end.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(200, 64)
        self.dropout = torch.nn.Dropout(0.2)
        self.cells = torch.nn.LSTM(64, 96)
        self.head = torch.nn.Linear(96, 200)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.cells(self.dropout(self.embedding(tokens)))
        return self.head(states).view(-1, 200)


model = Model()
tokens = torch.randint(0, 200, (1600, 16))


def get_batch(start: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tokens[start : start + 20], tokens[start + 1 : start + 21].reshape(-1)


def evaluate(batches: int) -> float:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for number in range(batches):
            x, y = get_batch(20 * number)
            total += torch.nn.functional.cross_entropy(model(x), y).item()
    return total / batches


def train(batches: int) -> None:
    model.train()
    for number in range(batches):
        x, y = get_batch(20 * number)
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-1.0)


def main(epochs: int, batches: int) -> None:
    truth = Truth()
    evaluating = truth.part("evaluation")
    for epoch in range(epochs):
        train(batches)
        if epoch == epochs - 1 or not os.environ.get("CURED"):
            with evaluating:
                evaluate(60)
    truth.end(epochs * batches)


main(epochs=10, batches=30)
