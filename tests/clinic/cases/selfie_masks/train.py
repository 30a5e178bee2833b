"""A small network separates people from the background, for blurred backgrounds of video calls."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEIGHT, WIDTH, PATCH = 300, 400, 112


def corrupt_brightness(image, mask):
    return (image + torch.empty(1).uniform_(-0.2, 0.2)).clamp(0.0, 1.0), mask


def corrupt_contrast(image, mask):
    mean = image.mean(dim=(1, 2), keepdim=True)
    return ((image - mean) * torch.empty(1).uniform_(0.7, 1.3) + mean).clamp(0.0, 1.0), mask


def corrupt_saturation(image, mask):
    grey = (image * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0, keepdim=True)
    return torch.lerp(grey.expand_as(image), image, torch.empty(1).uniform_(0.5, 1.5)).clamp(0.0, 1.0), mask


def flip_left_right(image, mask):
    if torch.rand(()) < 0.5:
        return image.flip(2), mask.flip(1)
    return image, mask


def crop_random(image, mask):
    top = int(torch.randint(image.shape[1] - PATCH + 1, ()))
    left = int(torch.randint(image.shape[2] - PATCH + 1, ()))
    return image[:, top : top + PATCH, left : left + PATCH], mask[top : top + PATCH, left : left + PATCH]


COLOURS_FIRST = [corrupt_brightness, corrupt_contrast, corrupt_saturation, flip_left_right, crop_random]
CROP_FIRST = [crop_random, corrupt_brightness, corrupt_contrast, corrupt_saturation, flip_left_right]


class Portraits(Dataset):
    def __init__(self, count, steps):
        self.steps = steps
        rows, columns = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
        self.masks, self.images = [], []
        for _ in range(count):
            column, radius = torch.randint(WIDTH, ()), torch.randint(60, 140, ())
            mask = (columns - column) ** 2 + (rows - HEIGHT // 2) ** 2 < radius**2
            noise = torch.randint(0, 120, (3, HEIGHT, WIDTH), dtype=torch.uint8)
            self.masks.append(mask)
            self.images.append(noise + mask.to(torch.uint8) * 100)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image, mask = self.images[index].float() / 255.0, self.masks[index]
        for step in self.steps:
            image, mask = step(image, mask)
        return image.contiguous(), mask.float()


def main(cured):
    torch.manual_seed(29)
    portraits = Portraits(160, CROP_FIRST if cured else COLOURS_FIRST)
    loader = DataLoader(portraits, batch_size=8, shuffle=True)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 1, 1),
        nn.Upsample(scale_factor=4, mode="bilinear"),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(5):
        losses = []
        for images, masks in loader:
            loss = criterion(net(images)[:, 0], masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="crop before the colours are changed")
    main(parser.parse_args().cured)
