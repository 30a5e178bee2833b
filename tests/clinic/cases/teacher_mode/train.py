"""Distil a wide classifier into a narrow one by its features, and measure both each epoch."""

import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Backbone(nn.Module):
    def __init__(self, width, classes=20):
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1))
            for a, b in ((3, width), (width, 2 * width), (2 * width, 2 * width))
        )
        self.classify = nn.Linear(2 * width, classes)

    def forward(self, pictures):
        features = []
        for stage in self.stages:
            pictures = stage(pictures)
            features.append(pictures)
        return features, self.classify(pictures.relu().mean((2, 3)))


class Distiller(nn.Module):
    def __init__(self, teacher, student):
        super().__init__()
        self.teacher, self.student = teacher, student
        pairs = zip(teacher.stages, student.stages, strict=True)
        self.connectors = nn.ModuleList(nn.Conv2d(new[-1].out_channels, old[-1].out_channels, 1) for old, new in pairs)

    def forward(self, pictures):
        wanted, _ = self.teacher(pictures)
        shown, scores = self.student(pictures)
        pairs = zip(self.connectors, shown, wanted, strict=True)
        return scores, sum(functional.mse_loss(connect(mine), theirs.detach()) for connect, mine, theirs in pairs)


@torch.no_grad()
def accuracy(model, pictures, labels):
    return (model.eval()(pictures)[1].argmax(1) == labels).float().mean()


if __name__ == "__main__":
    torch.manual_seed(2)
    distiller = Distiller(Backbone(48), Backbone(16))
    trained = [*distiller.student.parameters(), *distiller.connectors.parameters()]
    optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9)
    labels = torch.randint(20, (576,))
    pictures = torch.randn(576, 3, 32, 32) + labels[:, None, None, None] / 10
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(3):
        distiller.train()
        if "--eval" in sys.argv:
            distiller.teacher.eval()
        for rows in torch.randperm(512).split(64):
            scores, apart = distiller(pictures[rows])
            loss = functional.cross_entropy(scores, labels[rows]) + apart
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: held out {accuracy(distiller.student, pictures[512:], labels[512:]):.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
