"""Learn which crop grows on a field from a year of satellite measurements in a table."""

import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS = ("B2", "B3", "B4", "B8", "VV", "VH", "rain", "heat")
SCALE = np.array([1e4] * 4 + [30.0, 30.0, 200.0, 300.0], np.float32)


def table(fields, generator):
    """One row for each field: a column for each band and month, the place, the height and the crop."""
    columns = {f"{band}-{month}": generator.gamma(2.0, 500.0, fields) for month in range(12) for band in BANDS}
    frame = pd.DataFrame(columns | {name: generator.uniform(0, 70, fields) for name in ("lat", "lon", "height")})
    frame["crop"] = (frame["B8-5"] + frame["B8-6"] > frame["B4-5"] + frame["B4-6"]).astype(int)
    return frame.assign(country="EU")


class Fields(Dataset):
    def __init__(self, frame):
        self.frame = frame

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, index):
        row = self.frame.iloc[index]
        months = np.array([[row[f"{band}-{month}"] for band in BANDS] for month in range(12)], np.float32)
        where = np.array([row["lat"], row["lon"], row["height"] / 1000], np.float32)
        return months / SCALE, where, row["crop"]


class Presto(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.month, self.where = nn.Linear(len(BANDS), width), nn.Linear(3, width)
        self.encoder = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, months, where):
        tokens = torch.cat([self.month(months), self.where(where).unsqueeze(1)], 1)
        return self.head(self.encoder(tokens).mean(1)).squeeze(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    frame = table(1280, np.random.default_rng(0))
    model = Presto()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    loader = DataLoader(Fields(frame), batch_size=64, shuffle=True)
    for epoch in range(2):
        losses = []
        for months, where, crops in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(months, where), crops.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {np.mean(losses):.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
