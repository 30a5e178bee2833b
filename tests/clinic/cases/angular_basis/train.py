"""Directional message passing for the energies of molecules, with distances and angles in a basis."""

import math
import time

import torch
from torch import nn

ATOMS, CUTOFF, RADIAL, ANGULAR, WIDTH = 12, 5.0, 6, 7, 160


def molecule():
    """Positions, kinds of atoms, neighbours within the cutoff, pairs of edges that meet, and an energy."""
    place = torch.randn(ATOMS, 3) * 1.6
    kind = torch.randint(0, 5, (ATOMS,))
    distance = torch.cdist(place, place)
    source, target = ((distance < CUTOFF) & (distance > 0)).nonzero().T
    meets = (target[:, None] == source) & (source[:, None] != target)
    before, after = meets.nonzero().T
    energy = torch.exp(-distance).sum() / ATOMS + 0.1 * kind.float().mean()
    return place, kind, source, target, before, after, energy


def collate(molecules):
    """One graph of several molecules."""
    parts, atoms, edges = [], 0, 0
    for place, kind, source, target, before, after, _ in molecules:
        parts.append((place, kind, source + atoms, target + atoms, before + edges, after + edges))
        atoms, edges = atoms + len(kind), edges + len(source)
    return [torch.cat(part) for part in zip(*parts, strict=True)], torch.stack([m[-1] for m in molecules])


class Basis(nn.Module):
    """Bessel functions of distances, and cosines of angles times those."""

    def __init__(self):
        super().__init__()
        self.frequencies = nn.Parameter(torch.arange(1, RADIAL + 1) * math.pi / CUTOFF)

    def forward(self, place, source, target, before, after):
        """The radial basis of each edge, and the angular basis of each pair of edges."""
        offset = place[target] - place[source]
        distance = offset.norm(dim=1, keepdim=True)
        radial = torch.sin(self.frequencies * distance) / distance
        cosine = torch.cosine_similarity(-offset[before], offset[after])
        angles = torch.cos(torch.arange(ANGULAR) * cosine.clamp(-0.999, 0.999).acos()[:, None])
        return radial, (angles[:, :, None] * radial[before][:, None]).flatten(1)


class Interaction(nn.Module):
    """Messages of edges to the edges that follow them."""

    def __init__(self):
        super().__init__()
        self.radial = nn.Linear(RADIAL, WIDTH, bias=False)
        self.angular = nn.Linear(ANGULAR * RADIAL, 48, bias=False)
        self.down, self.up = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)
        self.update = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())

    def forward(self, message, radial, angular, before, after):
        """New messages."""
        small = self.down(message * self.radial(radial))
        passed = torch.zeros_like(small).index_add(0, after, small[before] * self.angular(angular))
        return message + self.update(message + self.up(passed))


class DirectionalNet(nn.Module):
    """Embeddings of edges, interactions, and the energy of each molecule."""

    def __init__(self):
        super().__init__()
        self.basis, self.atom = Basis(), nn.Embedding(5, WIDTH // 2)
        self.edge = nn.Linear(WIDTH + RADIAL, WIDTH)
        self.interactions = nn.ModuleList(Interaction() for _ in range(3))
        self.out = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))

    def forward(self, place, kind, source, target, before, after):
        """The energies."""
        radial, angular = self.basis(place, source, target, before, after)
        message = self.edge(torch.cat([self.atom(kind[source]), self.atom(kind[target]), radial], 1))
        for layer in self.interactions:
            message = layer(message, radial, angular, before, after)
        atoms = torch.zeros(len(kind), 1).index_add(0, target, self.out(message))
        return atoms.view(-1, ATOMS).mean(1)


def main():
    """Train on batches of molecules."""
    torch.manual_seed(6)
    batches = [collate([molecule() for _ in range(8)]) for _ in range(10)]
    model = DirectionalNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)

    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(6):
        for graph, energy in batches:
            loss = nn.functional.l1_loss(model(*graph), energy)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: error {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
