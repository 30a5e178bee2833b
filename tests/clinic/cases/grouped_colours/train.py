"""Learn a codebook of colour patches for a bag-of-words classifier."""

import time

import torch
from patchgroup import KMeans


def patches(count, size, seed):
    """Colours around a few hundred shades."""
    draw = torch.Generator().manual_seed(seed)
    shades = torch.rand(300, size, generator=draw)
    owner = torch.randint(300, (count,), generator=draw)
    return shades[owner] + 0.05 * torch.randn(count, size, generator=draw)


def histogram(codebook, images, groups):
    words = codebook.predict(images.flatten(0, 1)).view(len(images), -1)
    counts = torch.zeros(len(images), groups)
    return counts.scatter_add_(1, words, torch.ones_like(words, dtype=counts.dtype))


def main(groups=512, rows=40_000, size=3):
    colours = patches(rows, size, seed=0)
    begin, cpu = time.perf_counter(), time.process_time()
    codebook = KMeans(groups, iterations=20).fit(colours)
    images = patches(20 * 64, size, seed=0).view(20, 64, size)
    words = histogram(codebook, images, groups)
    print(f"{int((words.sum(0) > 0).sum())} of {groups} words are in use")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
