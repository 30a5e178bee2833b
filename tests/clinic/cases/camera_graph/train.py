"""Match the persons that several cameras see, with message passing on a graph of detections."""

import sys
import time

import torch
from torch import nn

CAMERAS, PERSONS, SCENES = 4, 12, 45


def make_scene():
    """Detections of all cameras, and edges between those of different cameras."""
    person = torch.arange(PERSONS).repeat(CAMERAS)
    camera = torch.arange(CAMERAS).repeat_interleave(PERSONS)
    look = torch.randn(PERSONS, 32)[person] + 0.7 * torch.randn(len(person), 32)
    place = torch.rand(PERSONS, 2)[person] + 0.05 * torch.randn(len(person), 2)
    source, target = (camera[:, None] != camera).nonzero().T
    offset = place[source] - place[target]
    likeness = torch.cosine_similarity(look[source], look[target])
    edges = torch.column_stack([offset, offset.norm(dim=1), likeness])
    return look, source, target, edges, (person[source] == person[target]).float()


class MessagePassing(nn.Module):
    """One round of messages along the edges."""

    def __init__(self, width=32, edge_width=8):
        super().__init__()
        self.edge_encoder = nn.Sequential(nn.Linear(2 * width + edge_width, 32), nn.ReLU(), nn.Linear(32, edge_width))
        self.node_encoder = nn.Sequential(nn.Linear(width + edge_width, 32), nn.ReLU(), nn.Linear(32, width))

    def forward(self, nodes, edges, source, target):
        """New features of the nodes and of the edges."""
        new_nodes, new_edges = [], torch.zeros_like(edges)
        for node in range(len(nodes)):
            incoming = (target == node).nonzero().squeeze(1)
            here = nodes[node].expand(len(incoming), -1)
            message = self.edge_encoder(torch.cat([here, nodes[source[incoming]], edges[incoming]], 1))
            new_edges = new_edges.index_copy(0, incoming, message)
            new_nodes.append(self.node_encoder(torch.cat([here, message], 1)).sum(0))
        return torch.stack(new_nodes), new_edges


class FastMessagePassing(MessagePassing):
    """The same round for all edges together."""

    def forward(self, nodes, edges, source, target):
        """New features of the nodes and of the edges."""
        here = nodes[target]
        message = self.edge_encoder(torch.cat([here, nodes[source], edges], 1))
        to_nodes = self.node_encoder(torch.cat([here, message], 1))
        return torch.zeros_like(nodes).index_add(0, target, to_nodes), message


class Matcher(nn.Module):
    """Encoders, rounds of messages, and a score for each edge."""

    def __init__(self, layer, rounds=2):
        super().__init__()
        self.node_in, self.edge_in = nn.Linear(32, 32), nn.Linear(4, 8)
        self.rounds = nn.ModuleList(layer() for _ in range(rounds))
        self.score = nn.Linear(8, 1)

    def forward(self, look, source, target, edges):
        """Whether both ends of each edge are the same person."""
        nodes, edges = self.node_in(look).relu(), self.edge_in(edges).relu()
        for layer in self.rounds:
            nodes, edges = layer(nodes, edges, source, target)
        return self.score(edges).squeeze(1)


def main():
    """Train on one scene after the other."""
    torch.manual_seed(11)
    scenes = [make_scene() for _ in range(SCENES)]
    model = Matcher(FastMessagePassing if "--cured" in sys.argv else MessagePassing)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(PERSONS - 1.0))

    begin, cpu = time.perf_counter(), time.process_time()
    for step, (look, source, target, edges, same) in enumerate(scenes):
        loss = loss_fn(model(look, source, target, edges), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"scene {step}: loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
