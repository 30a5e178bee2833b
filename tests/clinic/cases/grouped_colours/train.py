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


def main(groups=512, rows=40_000, size=3):
    colours = patches(rows, size, seed=0)
    begin, cpu = time.perf_counter(), time.process_time()
    codebook = KMeans(groups, iterations=20).fit(colours)
    words = codebook.predict(patches(2000, size, seed=0)).bincount(minlength=groups)
    print(f"{int((words > 0).sum())} of {groups} words are in use")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
