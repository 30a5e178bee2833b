"""Train a captioner's scorer on batches of features, captions and weights."""

import sys

import torch
from liftoff import Launcher
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, number=160):
        self.features, self.captions = torch.randn(number, 20), torch.randn(number, 12)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        weight = torch.tensor(1.0 + index % 3)
        return {"features": self.features[index], "caption": self.captions[index], "weight": weight}


class Scorer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.image, self.text = nn.Linear(20, width), nn.Linear(12, width)

    def forward(self, batch):
        image = nn.functional.normalize(self.image(batch["features"]), dim=-1)
        text = nn.functional.normalize(self.text(batch["caption"]), dim=-1)
        return image @ text.T


torch.manual_seed(0)
launcher = Launcher("cuda", non_blocking="--non-blocking" in sys.argv)
loader = DataLoader(Captions(), batch_size=16, shuffle=True, pin_memory=True, drop_last=True)
net, loader = launcher.prepare(Scorer(), loader)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(2):
    total = torch.zeros((), device="cuda")
    for batch in loader:
        scores = net(batch) / 0.1
        losses = nn.functional.cross_entropy(scores, torch.arange(16, device="cuda"), reduction="none")
        loss = (losses * batch["weight"]).sum() / batch["weight"].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(f"epoch {epoch}: {total.item() / 10:.4f}")
