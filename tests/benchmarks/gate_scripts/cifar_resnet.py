"""A small ResNet on pictures of 16 pixels: gradients of two micro-batches, running loss and accuracy, two epochs."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cpu:0")
accumulation_steps, epochs = 2, 2


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride=stride), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, 2)
        self.linear = nn.Linear(16, 10)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer2(self.layer1(out))
        out = F.adaptive_avg_pool2d(out, 1)
        return self.linear(out.flatten(1))


class Meter:
    def __init__(self):
        self.total, self.correct, self.count = 0.0, 0.0, 0

    def update(self, loss, outputs, targets):
        self.total += loss.item()
        _, predicted = outputs.max(1)
        self.correct += predicted.eq(targets).sum().item()
        self.count += targets.size(0)


pictures, labels = torch.randn(96, 3, 16, 16), torch.randint(0, 10, (96,))
trainloader = DataLoader(TensorDataset(pictures, labels), batch_size=8, shuffle=True)
net = ResNet().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
log = []


def train(epoch):
    net.train()
    meter = Meter()
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.to(device)
        outputs = net(inputs)
        loss = criterion(outputs, targets) / accumulation_steps
        loss.backward()
        meter.update(loss, outputs, targets)
        if (batch_idx + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            grads = [p.detach().norm() for p in net.parameters()]
            log.append(torch.stack(grads).max().item())
    return meter.total / meter.count


def test(epoch):
    net.eval()
    correct = 0
    with torch.no_grad():
        for inputs, targets in trainloader:
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = net(inputs)
            correct += outputs.argmax(1).eq(targets).sum().item()
    return correct


for epoch in range(epochs):
    train(epoch)
    test(epoch)
