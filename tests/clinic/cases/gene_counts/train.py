"""Train a variational autoencoder of counts of genes in single cells; the counts are stored as a sparse matrix."""

import argparse
import time

import numpy as np
import scipy.sparse
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

CELLS, GENES, LATENT = 3000, 600, 10


class GeneCounts(Dataset):
    """Yields whole batches: an index is a list of cells."""

    def __init__(self, counts):
        self.counts = counts

    def __len__(self):
        return self.counts.shape[0]

    def __getitem__(self, cells):
        rows = self.counts[cells]
        return torch.from_numpy(rows.toarray() if scipy.sparse.issparse(rows) else rows)


def simulate_counts():
    """Counts of a few types of cells; nine tenths are zero."""
    rng = np.random.default_rng(1)
    rates = rng.gamma(0.1, 1.0, (8, GENES))
    depth = rng.lognormal(0.0, 0.3, (CELLS, 1))
    return rng.poisson(rates[rng.integers(8, size=CELLS)] * depth).astype(np.float32)


def block(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU())


class CountsVAE(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.encoder = nn.Sequential(block(GENES, hidden), block(hidden, hidden))
        self.mean, self.log_variance = nn.Linear(hidden, LATENT), nn.Linear(hidden, LATENT)
        self.decoder = nn.Sequential(block(LATENT, hidden), block(hidden, hidden), nn.Linear(hidden, GENES))
        self.log_dispersion = nn.Parameter(torch.zeros(GENES))

    def forward(self, counts):
        """The mean of the negative evidence lower bound, with negative binomial counts."""
        hidden = self.encoder(torch.log1p(counts))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden).clamp(-8, 8)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        rate = self.decoder(latent).softmax(-1) * counts.sum(1, keepdim=True)
        dispersion = self.log_dispersion.exp()
        log_total = torch.log(dispersion + rate + 1e-8)
        likelihood = (
            dispersion * (self.log_dispersion - log_total)
            + counts * (torch.log(rate + 1e-8) - log_total)
            + torch.lgamma(counts + dispersion) - torch.lgamma(dispersion) - torch.lgamma(counts + 1)
        )  # fmt: skip
        divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(1)
        return (divergence - likelihood.sum(1)).mean()


def fit(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.01)
    model.train()
    for epoch in range(epochs):
        bounds = []
        for counts in loader:
            loss = model(counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bounds.append(loss.detach())
        print(f"epoch {epoch + 1}: {torch.stack(bounds).mean():.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dense", action="store_true", help="keep the counts as an array")
    options = parser.parse_args()
    torch.manual_seed(1)
    counts = simulate_counts()
    dataset = GeneCounts(counts if options.dense else scipy.sparse.csr_matrix(counts))
    loader = DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), 100, drop_last=True))
    model = CountsVAE()
    begin, cpu = time.perf_counter(), time.process_time()
    fit(model, loader, options.epochs)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
