"""Sparse variational Gaussian process for the use of electricity by households."""

import math
import sys
import time

import torch
from torch import nn
from torch.nn.functional import softplus

INDUCING, BATCH = 320, 2048


class SparseGP(nn.Module):
    """A whitened variational posterior at inducing points."""

    def __init__(self, inducing, fast):
        super().__init__()
        m, d = inducing.shape
        self.inducing = nn.Parameter(inducing.clone())
        self.raw_scales = nn.Parameter(torch.zeros(d))
        self.raw_noise = nn.Parameter(torch.tensor(-1.0))
        self.mean = nn.Parameter(torch.zeros(m))
        self.chol_covar = nn.Parameter(torch.eye(m))
        self.fast = fast

    def kernel(self, a, b):
        """Squared exponential, one length scale for each feature."""
        scales = softplus(self.raw_scales) + 0.5
        a, b = a / scales, b / scales
        distance = (a**2).sum(1, keepdim=True) + (b**2).sum(1) - 2 * a @ b.T
        return torch.exp(-0.5 * distance.clamp_min(0))

    def forward(self, x):
        """Mean and variance of the posterior at x."""
        eye = torch.eye(len(self.inducing))
        chol = torch.linalg.cholesky(self.kernel(self.inducing, self.inducing) + 1e-3 * eye)
        cross = self.kernel(self.inducing, x)
        chol_covar = self.chol_covar.tril()
        if self.fast:
            inverse = torch.linalg.solve_triangular(chol, eye, upper=False)
            middle = inverse.T @ (chol_covar @ chol_covar.T - eye) @ inverse
            return cross.T @ (inverse.T @ self.mean), 1 + (cross * (middle @ cross)).sum(0)
        interp = torch.linalg.solve_triangular(chol, cross, upper=False)
        spread = chol_covar @ (chol_covar.T @ interp) - interp
        return interp.T @ self.mean, 1 + (interp * spread).sum(0)

    def loss(self, x, y, total):
        """The negative lower bound of the evidence for each observation."""
        mean, variance = self(x)
        noise = softplus(self.raw_noise) + 1e-3
        fit = 0.5 * (math.log(2 * math.pi) + noise.log() + ((y - mean) ** 2 + variance) / noise)
        chol_covar = self.chol_covar.tril()
        log_det = chol_covar.diagonal().abs().log().sum()
        divergence = 0.5 * ((chol_covar**2).sum() + (self.mean**2).sum() - len(self.mean)) - log_det
        return fit.mean() + divergence / total


def main():
    """Train with large batches of hourly readings."""
    torch.manual_seed(2)
    features = torch.randn(16_384, 8)
    usage = (features[:, 0] * 2).sin() + features[:, 1] * features[:, 2].cos() + 0.2 * torch.randn(len(features))
    model = SparseGP(features[:INDUCING], fast="--cured" in sys.argv)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(3):
        for rows in torch.randperm(len(features)).split(BATCH):
            loss = model.loss(features[rows], usage[rows], len(features))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
