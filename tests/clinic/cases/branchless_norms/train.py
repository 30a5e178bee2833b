"""Train one body for three objectives whose gradients are normalized and combined."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 4


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.regress, self.classify, self.rebuild = nn.Linear(16, 1), nn.Linear(16, CLASSES), nn.Linear(16, 14)

    def losses(self, inputs, values, classes):
        hidden = self.body(inputs)
        wanted = F.one_hot(classes, CLASSES).float()
        yield F.smooth_l1_loss(self.regress(hidden).squeeze(-1), values)
        yield -(wanted * self.classify(hidden).log_softmax(-1)).sum(-1).mean()
        yield F.mse_loss(self.rebuild(hidden), inputs)


class Combiner:
    """Makes one direction of the gradients of all objectives."""

    def __call__(self, rows):
        if rows.shape[0] == 1 or rows.numel() == 0:
            return rows.sum(0)
        norms = rows.norm(dim=1, keepdim=True)
        rows = torch.where(norms < 1e-6, torch.zeros_like(rows), rows / norms)
        gram = rows @ rows.T
        conflict = (gram < 0).masked_fill(torch.eye(len(rows), dtype=torch.bool, device=rows.device), False)
        shares = gram.masked_fill(~conflict, 0.0).sum(1).softmax(0)
        return (shares.unsqueeze(1) * rows).sum(0)


def update(model, optimizer, combiner, batch):
    parameters = list(model.body.parameters())
    optimizer.zero_grad()
    rows = []
    for loss in list(model.losses(*batch)):
        rows.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, parameters, retain_graph=True)]))
    direction = combiner(torch.stack(rows))
    for parameter, part in zip(parameters, direction.split([parameter.numel() for parameter in parameters])):
        parameter.grad = part.view_as(parameter)
    optimizer.step()


torch.manual_seed(0)
model, combiner = Shared().to("cuda"), Combiner()
optimizer = torch.optim.SGD(model.body.parameters(), lr=0.05)
inputs = torch.randn(18, 20, 14, device="cuda")
classes = torch.randint(0, CLASSES, (18, 20), device="cuda")
for batch in zip(inputs, inputs.mean(-1), classes):
    update(model, optimizer, combiner, batch)
print("losses", [round(loss.item(), 4) for loss in model.losses(*batch)])
