"""The risk of readmission, from the vectors that describe a stay in hospital."""

import argparse
import time

import medkit_fit
import torch
from torch import nn

VECTORS = {"data.vitals": 24, "data.labs": 40, "data.drugs": 32, "data.diagnoses": 48}
VECTORS |= {"data.procedures": 16, "data.notes": 64, "data.imaging": 64, "data.demographics": 8}


class Stays(torch.utils.data.Dataset):
    def __init__(self, count):
        self.vectors = {key: torch.randn(count, width) for key, width in VECTORS.items()}
        risk = self.vectors["data.labs"][:, :4].sum(1) + self.vectors["data.notes"][:, :3].sum(1)
        self.labels = (risk + torch.randn(count) > 0.0).float()

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        indices = torch.tensor(indices)
        batch = {key: vector[indices] for key, vector in self.vectors.items()}
        return batch | {"data.label": self.labels[indices], "data.sample_id": indices}


class Readmission(nn.Module):
    def __init__(self, hidden=192):
        super().__init__()
        self.encoders = nn.ModuleDict({key.split(".")[1]: nn.Linear(width, 32) for key, width in VECTORS.items()})
        self.head = nn.Sequential(
            nn.ReLU(), nn.Linear(32 * len(VECTORS), hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 1)
        )

    def forward(self, batch):
        parts = [self.encoders[key.split(".")[1]](batch[key]) for key in VECTORS]
        logit = self.head(torch.cat(parts, dim=1))[:, 0]
        return batch | {"model.logit": logit, "model.risk": torch.sigmoid(logit)}


def loss(batch):
    return nn.functional.binary_cross_entropy_with_logits(batch["model.logit"], batch["data.label"])


def main(cured):
    torch.manual_seed(13)
    stays = Stays(6400)
    loader = torch.utils.data.DataLoader(stays, batch_size=128, shuffle=True, collate_fn=lambda batch: batch)
    model = Readmission()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = {"per_sample": False} if cured else {}
    metrics = {"auc": medkit_fit.AUC(pred="model.risk", target="data.label", **options)}
    begin, cpu = time.perf_counter(), time.process_time()
    medkit_fit.fit(model, loss, optimizer, loader, metrics, epochs=6)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="collect whole batches for the metric")
    main(parser.parse_args().cured)
