"""Prints exact losses at each step, reads a file beside it, writes to standard error, and ends with code 3."""

import argparse
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed-file")
    args = parser.parse_args()
    torch.manual_seed(int(open(args.seed_file).read()))
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    data = TensorDataset(torch.randn(4 * args.steps, 8), torch.randn(4 * args.steps, 1))
    for number, (x, y) in enumerate(DataLoader(data, batch_size=4, shuffle=True)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        print(number, loss.item().hex(), float(norm).hex(), int(norm > 0.5), x[x > 0].sum().item().hex())
    print(sum(p.double().sum() for p in model.parameters()).item().hex(), len(optimizer.state_dict()["state"]))
    sys.stderr.write("done\n")
    sys.exit(3)


if __name__ == "__main__":
    main()
