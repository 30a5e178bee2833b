"""Train a small segmentation net on annotated scans."""

import json
import sys
import time

import numpy as np
import scanbase
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def collect(patients, side=48, readers=4):
    """Fill the base with scans of one bright spot each, outlined by some readers."""
    base, draw, turns = scanbase.base, np.random.default_rng(12), np.linspace(0, 6.2, 40)
    base.executescript("CREATE TABLE scans (patient, side, pixels); CREATE TABLE annotations (scan, outline)")
    for number in range(patients):
        middle, size = draw.uniform(16, 32, 2), draw.uniform(6, 12)
        distance = np.hypot(*(np.indices((side, side)) - middle[:, None, None]))
        pixels = ((distance < size) + draw.normal(0, 0.3, (side, side))).astype(np.float32)
        base.execute("INSERT INTO scans VALUES (?, ?, ?)", (number, side, pixels.tobytes()))
        for _ in range(readers):
            outline = json.dumps((middle + size * np.stack((np.sin(turns), np.cos(turns)), 1)).tolist())
            base.execute("INSERT INTO annotations VALUES (?, ?)", (number, outline))


class Scans(Dataset):
    def __init__(self, patients, ready):
        self.patients = patients
        self.ready = [self.load(patient) for patient in patients] if ready else None

    def __len__(self):
        return len(self.patients)

    def load(self, patient):
        scan = scanbase.query(scanbase.Scan).filter(patient=patient).first()
        return scan.volume(), scan.consensus().astype(np.float32)

    def __getitem__(self, index):
        return self.ready[index] if self.ready else self.load(self.patients[index])


torch.manual_seed(0)
collect(60)
begin, cpu = time.perf_counter(), time.process_time()
loader = DataLoader(Scans(range(60), ready="--cured" in sys.argv), batch_size=6, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 5, padding=2))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(6):
    for pixels, mask in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(net(pixels), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
