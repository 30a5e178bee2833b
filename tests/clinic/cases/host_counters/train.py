"""Train a sequence tagger, with a warmup that follows the optimizer's own count of updates."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, width=24, tags=5):
        super().__init__()
        self.inner = nn.Linear(8, width)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.tags = nn.Linear(width, tags)

    def forward(self, tokens):
        hidden = torch.relu(self.inner(tokens))
        return self.tags(hidden + self.mix(hidden.transpose(1, 2)).transpose(1, 2))


class Warmup:
    """Scales the learning rate by the number of updates that the optimizer has made."""

    def __init__(self, optimizer, top, updates):
        self.optimizer, self.top, self.updates = optimizer, top, updates

    def apply(self):
        first = self.optimizer.param_groups[0]["params"][0]
        made = self.optimizer.state[first]["step"].item() if first in self.optimizer.state else 0.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.top * min(1.0, (made + 1.0) / self.updates)


def corpus(device, sentences, batch):
    """Batches on the device, each with the lengths of its sentences on the host."""
    for _ in range(sentences // batch):
        lengths = torch.randint(6, 13, (batch,))
        tokens = torch.randn(batch, 12, 8, device=device)
        yield tokens, tokens[..., :5].argmax(-1), lengths


torch.manual_seed(0)
device = torch.device("cuda")
net = Tagger().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.0)
warmup = Warmup(optimizer, top=4e-3, updates=8)
seen, total = 0, torch.zeros((), device=device)
for tokens, tags, lengths in corpus(device, 200, 10):
    longest = int(lengths.max())
    seen += lengths.sum().item()
    warmup.apply()
    scores = net(tokens[:, :longest])
    loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), tags[:, :longest].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
print(f"{seen} tokens, mean loss {total.item() / 20:.4f}")
