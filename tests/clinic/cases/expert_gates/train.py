"""Train a small mixture of experts whose feed-forward layers send each token to two of four experts."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

EXPERTS, CHOSEN, WIDTH = 4, 2, 24
SORTED = "--sorted" in sys.argv


class Expert(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH))


class MixtureLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.register_buffer("prior", 9.0 * torch.eye(EXPERTS))

    def forward(self, tokens):
        places = torch.arange(len(tokens), device=tokens.device) % EXPERTS
        scores = F.softmax(self.gate(tokens) + self.prior[places], dim=-1)
        weights, choice = scores.topk(CHOSEN, dim=-1)
        out = torch.zeros_like(tokens)
        return tokens + (self.by_order if SORTED else self.by_mask)(tokens, weights, choice, out)

    def by_mask(self, tokens, weights, choice, out):
        for number, expert in enumerate(self.experts):
            mask = choice == number
            if mask.any():
                rows = mask.any(dim=-1).nonzero().flatten()
                share = weights[mask].unsqueeze(-1)
                out.index_add_(0, rows, expert(tokens[rows]) * share)
        return out

    def by_order(self, tokens, weights, choice, out):
        owners, order = choice.flatten().sort(stable=True)
        numbers = torch.arange(EXPERTS + 1, device=tokens.device)
        bounds = torch.searchsorted(owners, numbers).tolist()
        for expert, begin, end in zip(self.experts, bounds, bounds[1:]):
            own = order[begin:end]
            rows = own // CHOSEN
            out.index_add_(0, rows, expert(tokens[rows]) * weights.flatten()[own].unsqueeze(-1))
        return out


torch.manual_seed(0)
model = nn.Sequential(MixtureLayer(), MixtureLayer(), nn.Linear(WIDTH, 10)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs = torch.randn(20, 64, WIDTH, device="cuda")
labels = torch.randint(0, 10, (20, 64), device="cuda")
for batch, wanted in zip(inputs, labels):
    loss = F.cross_entropy(model(batch), wanted)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"last loss {loss.item():.4f}")
