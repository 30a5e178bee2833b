"""Fine-tunes a classifier and keeps a compressed gradient of each batch, to find influential batches later."""

import argparse
import time

import torch
from torch import nn


class GradientCollector:
    """Within its context, hooks gather a random projection of the gradient of each linear layer."""

    def __init__(self, model, rank, clear_handles):
        self.layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        self.left = {name: torch.randn(rank, layer.out_features) for name, layer in self.layers.items()}
        self.right = {name: torch.randn(layer.in_features, rank) for name, layer in self.layers.items()}
        self.clear_handles = clear_handles
        self.inputs, self.gradients = {}, {}
        self._fwd_hooks, self._bwd_hooks = [], []

    def __enter__(self):
        for name, layer in self.layers.items():
            self._fwd_hooks.append(layer.register_forward_hook(self._save_input(name)))
            self._bwd_hooks.append(layer.register_full_backward_hook(self._project(name)))
        return self

    def __exit__(self, *_):
        for handle in self._fwd_hooks:
            handle.remove()
        for handle in self._bwd_hooks:
            handle.remove()
        if self.clear_handles:
            self._fwd_hooks.clear()
            self._bwd_hooks.clear()

    def _save_input(self, name):
        def hook(_, inputs, __):
            self.inputs[name] = inputs[0].detach() @ self.right[name]

        return hook

    def _project(self, name):
        def hook(_, __, outputs):
            self.gradients[name] = self.left[name] @ outputs[0].T @ self.inputs.pop(name)

        return hook

    def collect(self):
        gradient = torch.cat([self.gradients[name].flatten() for name in self.layers])
        self.gradients.clear()
        return gradient


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, hidden):
        return hidden + self.down(torch.relu(self.up(self.norm(hidden))))


def main(cured):
    torch.manual_seed(23)
    samples, width = 8800, 48
    features = torch.randn(samples, 32)
    labels = (features[:, :8].sum(1) > 0).long() + (features[:, 8:16].sum(1) > 0).long()
    model = nn.Sequential(nn.Linear(32, width), *[Block(width) for _ in range(4)], nn.Linear(width, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    criterion = nn.CrossEntropyLoss()
    collector = GradientCollector(model, rank=4, clear_handles=cured)
    begin, cpu = time.perf_counter(), time.process_time()
    index = []
    for epoch in range(2):
        losses = []
        for chosen in torch.randperm(samples).split(32):
            with collector:
                loss = criterion(model(features[chosen]), labels[chosen])
                optimizer.zero_grad()
                loss.backward()
            index.append(collector.collect())
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}")
    print(f"an index of {tuple(torch.stack(index).shape)} numbers")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="forget the handles that were removed")
    main(parser.parse_args().cured)
