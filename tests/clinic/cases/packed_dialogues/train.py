"""Tune a small language model on packed dialogues."""

import argparse
import time

import packing
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class PackedDialogues(Dataset):
    def __init__(self, dialogues, limit, pack):
        self.dialogues = dialogues
        self.limit = limit
        self.rows = pack([len(dialogue) for dialogue in dialogues], limit)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        tokens = torch.cat([self.dialogues[member] for member in self.rows[index]])
        return nn.functional.pad(tokens, (0, self.limit - len(tokens)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dialogues", type=int, default=15_000)
    parser.add_argument("--pack", choices=("scan", "tree"), default="scan")
    args = parser.parse_args()
    torch.manual_seed(0)
    lengths = torch.randint(40, 400, (args.dialogues,)).tolist()
    dialogues = [torch.randint(1, 500, (length,)) for length in lengths]
    begin, cpu = time.perf_counter(), time.process_time()
    dataset = PackedDialogues(dialogues, 512, packing.pack_by_tree if args.pack == "tree" else packing.pack_by_scan)
    print(f"{len(dataset)} rows", flush=True)
    model = nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 500))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step, rows in zip(range(20), DataLoader(dataset, batch_size=4, shuffle=True)):
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f} after {step + 1} steps")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
