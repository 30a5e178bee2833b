"""A small transformer, some 25 ms a step on one thread: a plain training script, run bare and under each recorder."""

from __future__ import annotations

import os
import sys
from itertools import chain, islice, repeat

import torch
from timed import finished, stamp, started, step_of, watch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH, BATCH, BATCHES = 512, 64, 8, 500
LAYERS, WIDTH = (
    int(os.environ.get(name, value)) for name, value in (("OVERHEAD_LAYERS", "2"), ("OVERHEAD_WIDTH", "128"))
)
DEVICE = os.environ.get("OVERHEAD_DEVICE", "cpu")
STEPS = int(os.environ.get("OVERHEAD_STEPS", "200"))


class Model(nn.Module):
    """Layers of attention over a window of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.layers(self.embedding(ids), mask=mask, is_causal=True))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    watch()
    ids = torch.randint(0, VOCABULARY, (min(STEPS, BATCHES) * BATCH, LENGTH + 1))
    loader = DataLoader(TensorDataset(ids), batch_size=BATCH, shuffle=True)
    model = Model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stamps, total = started(), 0.0
    epochs = chain.from_iterable(repeat(loader))
    for step, (batch,) in enumerate(islice(epochs, STEPS)):
        with step_of(model):
            batch = batch.to(DEVICE)
            logits = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 50 == 0:
                print(f"step {step} loss {total / (step + 1):.3f}", file=sys.stderr)
        stamps.append(stamp())
    finished(stamps)


if __name__ == "__main__":
    main()
