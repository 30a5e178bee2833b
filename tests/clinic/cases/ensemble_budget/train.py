"""Train the members of an ensemble of binding predictors, some here and some in forked workers."""

import os
import sys
import time

import torch
from torch import multiprocessing, nn

WORKERS, STEPS = 2, 40


class Affinity(nn.Module):
    """Reads encoded peptides beside the sequence of an allele."""

    def __init__(self, hidden=256):
        super().__init__()
        self.peptide = nn.Linear(15 * 21, hidden)
        self.allele = nn.Linear(37 * 21, hidden)
        self.rest = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, peptides, alleles):
        return self.rest(torch.tanh(self.peptide(peptides)) * torch.sigmoid(self.allele(alleles)))[:, 0]


def threads_of_each(workers):
    """The plan: each process gets its share of the cores."""
    share = max(1, (os.cpu_count() or 1) // (workers + 1))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(share)
    return share


def fit(member, steps):
    """Train one member on data of its own fold."""
    torch.manual_seed(member)
    model = Affinity()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    for _ in range(steps):
        peptides, alleles = torch.rand(384, 15 * 21), torch.rand(384, 37 * 21)
        truth = peptides[:, :60].mean(1)
        loss = nn.functional.mse_loss(torch.sigmoid(model(peptides, alleles)), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def worker(member, steps, threads, results):
    if threads:
        torch.set_num_threads(threads)
    results.put((member, fit(member, steps)))


def main():
    share = threads_of_each(WORKERS)
    budget = share if "--apply" in sys.argv else None
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    begin, cpu = time.perf_counter(), time.process_time()
    others = [context.Process(target=worker, args=(n, STEPS, budget, results)) for n in range(1, WORKERS + 1)]
    for process in others:
        process.start()
    worker(0, STEPS, budget, results)
    for process in others:
        process.join()
    print(sorted(results.get() for _ in range(WORKERS + 1)))
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
