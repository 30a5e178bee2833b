"""A small transformer whose trainer watches gradients, and the quality of what the model ranks."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[], choices=["metrics-in-loop"])
parser.add_argument("--cured", action="append", default=[], choices=["metrics-in-loop"])
parser.add_argument("--style", choices=["gradients", "ranking"], default="gradients")
parser.add_argument("--steps", type=int, default=400)
EVERY = 200


class Watch:
    """Percentiles of all gradients, for a page of curves."""

    def __init__(self, model):
        self.model, self.curves = model, {}
        self.levels = torch.tensor([0.05, 0.5, 0.95])

    def look(self):
        for name, parameter in self.model.named_parameters():
            sizes = parameter.grad.abs().flatten()
            self.curves[name] = torch.quantile(sizes, self.levels).tolist()  # ill: gradients


def mean_rank(scores, labels):
    ranks = torch.argsort(torch.argsort(scores.flatten()))  # ill: ranking
    return ranks[labels.flatten() > 0].double().mean().item()  # ill: ranking


class Ranker(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        return self.score(self.layer(self.embed(x))).squeeze(-1)


def main():
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    every = 1 if arguments.ill else EVERY
    net = Ranker()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    watch, history, seen = Watch(net), [], []
    items, labels = torch.randn(256, 64, 16), (torch.rand(256, 64) > 0.7).float()
    warm, began = arguments.steps // 5, 0.0
    for step in range(1, arguments.steps + 1):
        chosen = torch.randint(0, 256, (16,))
        scores = net(items[chosen])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels[chosen])
        if arguments.style == "ranking" and step % every == 0:
            seen.append((scores.detach(), labels[chosen]))
            del seen[:-32]
            history.append(mean_rank(torch.cat([each for each, _ in seen]), torch.cat([each for _, each in seen])))
        optimizer.zero_grad()
        loss.backward()
        if arguments.style == "gradients" and step % every == 0:
            watch.look()
        optimizer.step()
        if step == warm:
            began, cpu = time.perf_counter(), time.process_time()
    print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
