"""Integrate networks of genes: encode each network with a graph convolution, and reconstruct it from their mean."""

import argparse
import random
import time

import torch
from torch import nn


class Network:
    """Weighted links between genes, as a table of them is read."""

    def __init__(self, seed, genes, links):
        draw = random.Random(seed)
        names = draw.sample([f"YGR{number:04d}W" for number in range(1500)], genes)
        popular = [names[int(genes * draw.random() ** 2)] for _ in range(2 * links)]
        self.links = {pair: draw.random() for pair in zip(popular[:links], popular[links:], strict=True)}
        self.genes = sorted({gene for pair in self.links for gene in pair})


class Preprocessor:
    """Finds the genes of all networks and makes a sparse matrix of each network over them."""

    def __init__(self, networks, uses_table):
        self.networks, self.uses_table = networks, uses_table
        self.union = sorted({gene for network in networks for gene in network.genes})

    def process(self):
        print(f"{len(self.union)} genes in {len(self.networks)} networks")
        return [self.create_graph(network) for network in self.networks]

    def create_graph(self, network):
        """Links in both directions and loops, scaled by the degrees."""
        if self.uses_table:
            numbers = {gene: number for number, gene in enumerate(self.union)}
            pairs = [(numbers[one], numbers[other]) for one, other in network.links]
        else:
            pairs = [(self.union.index(one), self.union.index(other)) for one, other in network.links]
        places, weights = torch.tensor(pairs).T, torch.tensor(list(network.links.values()))
        loops = torch.arange(len(self.union)).expand(2, -1)
        places = torch.cat([places, places.flip(0), loops], 1)
        weights = torch.cat([weights, weights, torch.ones(len(self.union))])
        degrees = torch.zeros(len(self.union)).index_add(0, places[0], weights)
        scaled = weights * degrees[places[0]].rsqrt() * degrees[places[1]].rsqrt()
        return torch.sparse_coo_tensor(places, scaled, (len(self.union),) * 2).coalesce()


class Integrator(nn.Module):
    def __init__(self, genes, networks, width=32):
        super().__init__()
        self.inputs = nn.ModuleList(nn.Embedding(genes, width) for _ in range(networks))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(networks))
        self.project = nn.Linear(width, width)

    def forward(self, graphs):
        found = [
            torch.tanh(layer(torch.sparse.mm(graph, torch.sparse.mm(graph, table.weight))))
            for graph, table, layer in zip(graphs, self.inputs, self.layers, strict=True)
        ]
        return self.project(torch.stack(found).mean(0))


def train(model, graphs, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        genes = model(graphs)
        loss = 0.0
        for graph in graphs:
            rows = torch.randint(graph._nnz(), (4000,))
            (first, second), weights = graph.indices()[:, rows], graph.values()[rows]
            loss = loss + (weights - (genes[first] * genes[second]).sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", action="store_true", help="look up the numbers of genes in a table")
    options = parser.parse_args()
    torch.manual_seed(2)
    networks = [Network(seed, 1100, 40_000) for seed in range(4)]
    begin, cpu = time.perf_counter(), time.process_time()
    preprocessor = Preprocessor(networks, options.table)
    graphs = preprocessor.process()
    print(f"preprocessed in {time.perf_counter() - begin:.1f} s")
    train(Integrator(len(preprocessor.union), len(graphs)), graphs, 30)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
