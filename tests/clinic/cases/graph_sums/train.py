"""Sort the papers of a citation graph into subjects."""

import time

import torch
from graphkit import MessagePassing
from torch import nn

PAPERS, LINKS, WORDS, SUBJECTS = 2400, 10000, 600, 7


class Convolution(MessagePassing):
    """Sums the neighbours, each by the degrees of both ends."""

    def __init__(self, before, after):
        super().__init__()
        self.linear = nn.Linear(before, after, bias=False)
        self.bias = nn.Parameter(torch.zeros(after))

    def forward(self, nodes, links, weights):
        return self.propagate(links, self.linear(nodes), weights) + self.bias

    def message(self, sources, weights):
        return sources * weights.unsqueeze(1)


class Network(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.first, self.second, self.drop = Convolution(WORDS, width), Convolution(width, SUBJECTS), nn.Dropout(0.3)

    def forward(self, nodes, links, weights):
        return self.second(self.drop(self.first(self.drop(nodes), links, weights).relu()), links, weights)


def citations():
    subjects = torch.randint(SUBJECTS, (PAPERS,))
    words = (torch.rand(PAPERS, WORDS) < 0.02 + 0.1 * (torch.arange(WORDS) % SUBJECTS == subjects.unsqueeze(1))).float()
    near = torch.randint(PAPERS, (LINKS,)) + torch.randint(60, (2, LINKS))
    links = torch.cat([subjects.argsort()[near % PAPERS], torch.arange(PAPERS).expand(2, -1)], 1)
    degree = torch.bincount(links[1], minlength=PAPERS).float().rsqrt()
    return words, links, degree[links[0]] * degree[links[1]], subjects


if __name__ == "__main__":
    torch.manual_seed(0)
    words, links, weights, subjects = citations()
    is_train = torch.rand(PAPERS) < 0.5
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(36):
        model.train()
        optimizer.zero_grad()
        scores = model(words, links, weights)
        nn.functional.cross_entropy(scores[is_train], subjects[is_train]).backward()
        optimizer.step()
        if epoch % 12 == 11:
            model.eval()
            with torch.no_grad():
                hits = model(words, links, weights).argmax(1) == subjects
            print(f"held out {hits[~is_train].float().mean():.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
