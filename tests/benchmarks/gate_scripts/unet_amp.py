"""A U-Net for masks: mixed precision with a scaler, Dice score, an average of the weights, a log of every step."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
device = torch.device("cpu:0")
images, masks = torch.randn(32, 1, 16, 16), (torch.rand(32, 1, 16, 16) > 0.5).float()


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, padding=1),
            nn.GroupNorm(2, out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
            nn.GroupNorm(2, out_channels),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down = DoubleConv(1, 8), DoubleConv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.conv, self.outc = DoubleConv(16, 8), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down(F.max_pool2d(x1, 2))
        x = self.conv(torch.cat([x1, self.up(x2)], dim=1))
        return self.outc(x)


def dice_loss(pred, target, eps=1e-6):
    inter = 2 * (pred * target).sum()
    sets = pred.sum() + target.sum()
    return 1 - (inter + eps) / (sets + eps)


class Trainer:
    def __init__(self, model):
        self.model, self.ema = model, copy.deepcopy(model)
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9)
        self.grad_scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        self.global_step, self.epoch_loss, self.records = 0, 0.0, []

    def update_ema(self, decay=0.99):
        with torch.no_grad():
            for average, parameter in zip(self.ema.parameters(), self.model.parameters()):
                average.mul_(decay).add_(parameter, alpha=1 - decay)

    def compute_loss(self, images, true_masks):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            masks_pred = self.model(images)
        masks_pred = masks_pred.float()
        loss = F.binary_cross_entropy_with_logits(masks_pred, true_masks)
        loss = loss + dice_loss(torch.sigmoid(masks_pred), true_masks)
        return loss, masks_pred

    def train_step(self, images, true_masks):
        images = images.to(device)
        true_masks = true_masks.to(device)
        loss, masks_pred = self.compute_loss(images, true_masks)
        self.optimizer.zero_grad(set_to_none=True)
        self.grad_scaler.scale(loss).backward()
        self.grad_scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        self.update_ema()
        self.global_step += 1
        self.epoch_loss += loss.item()
        if self.global_step % 4 == 0:
            score = ((masks_pred > 0) == (true_masks > 0.5)).float().mean()
            self.records.append({"step": self.global_step, "loss": loss.item(), "score": score.item()})


trainer = Trainer(UNet().to(device))
for epoch in range(3):
    order = torch.randperm(len(images))
    for start in range(0, len(images), 8):
        batch = order[start : start + 8]
        trainer.train_step(images[batch], masks[batch])
