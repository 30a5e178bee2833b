"""Score the credit of companies in eight classes: a linear model of many ratios for few companies."""

import sys
import time

import torch
from tabfit import Classifier
from torch import nn

COMPANIES, RATIOS, CLASSES = 80, 301, 8


def make_table():
    """Ratios that differ between the classes."""
    labels = torch.arange(COMPANIES) % CLASSES
    return torch.randn(CLASSES, RATIOS)[labels] + 2 * torch.randn(COMPANIES, RATIOS), labels


def main():
    torch.manual_seed(4)
    ratios, labels = make_table()
    callbacks = [] if "--plain" in sys.argv else None
    scorer = Classifier(nn.Linear(RATIOS, CLASSES), epochs=900, lr=2e-3, batch_size=40, callbacks=callbacks)
    begin, cpu = time.perf_counter(), time.process_time()
    scorer.fit(ratios, labels)
    print(f"loss {scorer.history[-1, 'batches', -1, 'train_loss']:.4f} after {len(scorer.history)} epochs")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
