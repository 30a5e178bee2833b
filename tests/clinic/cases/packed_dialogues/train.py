"""Tune a small language model on packed dialogues."""

import argparse
import time

import packing
import torch
from torch import nn
from torch.utils.data import DataLoader


def main(limit=512):
    parser = argparse.ArgumentParser()
    parser.add_argument("--pack", choices=("scan", "tree"), default="scan")
    args = parser.parse_args()
    torch.manual_seed(0)
    dialogues = [torch.randint(1, 500, (length,)) for length in torch.randint(40, 400, (40_000,)).tolist()]

    def collate(rows):
        return nn.utils.rnn.pad_sequence([torch.cat([dialogues[member] for member in row]) for row in rows], True)

    begin, cpu = time.perf_counter(), time.process_time()
    pack = packing.pack_by_tree if args.pack == "tree" else packing.pack_by_scan
    rows = pack([len(dialogue) for dialogue in dialogues], limit)
    model = nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 500))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _, batch in zip(range(20), DataLoader(rows, batch_size=4, shuffle=True, collate_fn=collate)):
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f} on {len(rows)} rows")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
