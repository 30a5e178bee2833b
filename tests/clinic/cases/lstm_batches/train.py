"""Label the frames of recordings with a stacked LSTM."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self, features=40, width=160, layers=3, tags=12):
        super().__init__()
        self.recurrent = nn.LSTM(features, width, num_layers=layers, batch_first=True, dropout=0.1)
        self.drop = nn.Dropout(0.2)
        self.tag = nn.Linear(width, tags)

    def forward(self, frames):
        hidden, _ = self.recurrent(frames)
        return self.tag(self.drop(hidden))


def recordings(count, length):
    frames = torch.randn(count, length, 40)
    return TensorDataset(frames, frames.cumsum(1)[..., :12].argmax(-1))


def run_epoch(model, loader, criterion, optimizer):
    model.train()
    total = 0.0
    for frames, tags in loader:
        optimizer.zero_grad()
        loss = criterion(model(frames).flatten(0, 1), tags.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(1)
    loader = DataLoader(recordings(768, 24), batch_size=options.batch_size, shuffle=True)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * options.batch_size / 128)
    criterion = nn.CrossEntropyLoss()
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(options.epochs):
        print(f"epoch {epoch}: {run_epoch(model, loader, criterion, optimizer):.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
