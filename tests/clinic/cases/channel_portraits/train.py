"""Draw a film: the image that excites a channel of a network, from one channel to the next."""

import argparse
import time
from itertools import pairwise

import torch
from glimpse import objective_of, render
from torch import nn


def make_network(width=12, blocks=8):
    """A network of blocks with few channels; its weights stay as they are."""
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for block in range(blocks):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.AvgPool2d(2)] if block % 4 == 3 else []
    return nn.Sequential(*layers).eval().requires_grad_(False)


def clear_taps(network):
    """Take off all hooks that a drawing has left at the layers."""
    for layer in network.modules():
        layer._forward_hooks.clear()


class Film:
    """Frames that lead from the portrait of each channel to that of the next."""

    def __init__(self, network, layer, size=12, is_clean=False):
        self.network, self.layer, self.size, self.is_clean = network, layer, size, is_clean
        self.frames, self.answers = [], []

    def blend(self, first, second, share):
        one, other = objective_of(self.layer, first), objective_of(self.layer, second)
        return lambda read: (1 - share) * one(read) + share * other(read)

    def shoot(self, channels, between):
        image = None
        for first, second in pairwise(channels):
            for frame in range(between):
                objective = self.blend(first, second, frame / between)
                image, answer = render(self.network, objective, self.size, start=image)
                self.frames.append(image)
                self.answers.append(-answer)
                if self.is_clean:
                    clear_taps(self.network)
            print(f"channel {first} to {second}: answer {sum(self.answers[-between:]) / between:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clean", action="store_true", help="clear the hooks after each frame")
    options = parser.parse_args()
    torch.manual_seed(7)
    film = Film(make_network(), "20", is_clean=options.clean)
    begin, cpu = time.perf_counter(), time.process_time()
    film.shoot(range(7), 50)
    print(f"{len(film.frames)} frames")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
