"""Train a concept bottleneck: features of birds become attributes, and the attributes become the species."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONCEPTS, SPECIES, WIDTH = 112, 40, 256


class Birds(Dataset):
    """Features of images with their attributes and species; the attributes of a species hardly vary."""

    def __init__(self, size, seed=3):
        generator = torch.Generator().manual_seed(seed)
        templates = torch.rand(SPECIES, CONCEPTS, generator=generator) < 0.3
        self.species = torch.randint(SPECIES, (size,), generator=generator)
        noise = torch.rand(size, CONCEPTS, generator=generator) < 0.05
        self.concepts = (templates[self.species] ^ noise).float()
        mixing = torch.randn(CONCEPTS, WIDTH, generator=generator) / CONCEPTS**0.5
        self.features = self.concepts @ mixing + 0.1 * torch.randn(size, WIDTH, generator=generator)

    def __len__(self):
        return len(self.species)

    def __getitem__(self, index):
        return {"features": self.features[index], "concepts": self.concepts[index], "labels": self.species[index]}


class ConceptBottleneck(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 384), nn.LeakyReLU(), nn.Linear(384, CONCEPTS))
        self.head = nn.Sequential(nn.Linear(CONCEPTS, 128), nn.LeakyReLU(), nn.Linear(128, SPECIES))

    def forward(self, features):
        probabilities = torch.sigmoid(self.encoder(features))
        return probabilities, self.head(probabilities)


class BottleneckLoss(nn.Module):
    """Cross entropy of the species and, weighted, the mean cross entropy of the attributes."""

    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, predicted_concepts, logits, concepts, labels):
        target_loss = F.cross_entropy(logits, labels)
        concepts_loss = 0.0
        for concept in range(concepts.shape[1]):
            column = predicted_concepts[:, concept]
            concepts_loss = concepts_loss + F.binary_cross_entropy(column, concepts[:, concept])
        concepts_loss = concepts_loss / concepts.shape[1]
        return target_loss, concepts_loss, target_loss + self.alpha * concepts_loss


def train_one_epoch(loader, model, optimizer, loss_fn, epoch):
    """One pass over the birds; prints the means of the losses."""
    model.train()
    sums = torch.zeros(3)
    for batch in loader:
        predicted, logits = model(batch["features"])
        losses = loss_fn(predicted, logits, batch["concepts"], batch["labels"])
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
        sums += torch.stack(losses).detach()
    target, concepts, total = (sums / len(loader)).tolist()
    print(f"epoch {epoch}: target {target:.3f}, concepts {concepts:.3f}, total {total:.3f}")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.manual_seed(3)
    loader = DataLoader(Birds(2048), batch_size=64, shuffle=True, drop_last=True)
    model = ConceptBottleneck()
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.3)
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(arguments.epochs):
        train_one_epoch(loader, model, optimizer, BottleneckLoss(), epoch)
        scheduler.step()
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
