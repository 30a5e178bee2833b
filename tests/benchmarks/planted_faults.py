"""Faults that are planted into the training programs of `refactorings`: each makes a step do more, or wait earlier."""

from __future__ import annotations

from typing import Final

from tests.benchmarks.refactorings import GPT, RESNET, UNET, Edit

FAULTS: Final = (
    Edit(
        GPT,
        "a helper hides an item()",
        (
            ("    loss.backward()\n", "    loss.backward()\n    watch(loss)\n"),
            (
                "model = GPT()",
                "def watch(value):\n    if value.item() > 100:\n        print(value)\n\n\nmodel = GPT()",
            ),
        ),
    ),
    Edit(
        GPT,
        "a wait moves before the backward pass",
        (
            ("    accuracy = (logits.argmax(-1) == Y).float().mean().item()\n", ""),
            (
                "    loss.backward()\n",
                "    accuracy = (logits.argmax(-1) == Y).float().mean().item()\n    loss.backward()\n",
            ),
        ),
    ),
    Edit(
        GPT,
        "a helper with a wait is called before the backward pass",
        (
            ("    accuracy = (logits.argmax(-1) == Y).float().mean().item()\n", ""),
            ("    loss.backward()\n", "    accuracy = accuracy_of(logits, Y)\n    loss.backward()\n"),
            (
                "model = GPT()",
                (
                    "def accuracy_of(scores, labels):\n    hits = scores.argmax(-1) == labels\n"
                    "    return hits.float().mean().item()\n\n\nmodel = GPT()"
                ),
            ),
        ),
    ),
    Edit(
        GPT,
        "a wait in a helper of every layer",
        (
            ("            x = block(x)\n", "            x = check(block(x))\n"),
            (
                "class GPT(nn.Module):\n",
                (
                    "def check(x):\n    assert torch.isfinite(x.detach().sum()).item()\n    return x\n\n\n"
                    "class GPT(nn.Module):\n"
                ),
            ),
        ),
    ),
    Edit(
        GPT,
        "a rare wait becomes one of each step, another one is gone",
        (
            ("    accuracy = (logits.argmax(-1) == Y).float().mean().item()\n", "    accuracy = 0.0\n"),
            (
                (
                    "    if iter_num % log_interval == 0:\n        lossf = loss.item()\n"
                    "        history.append((iter_num, lossf, accuracy))\n"
                ),
                "    lossf = loss.item()\n    history.append((iter_num, lossf, accuracy))\n",
            ),
        ),
    ),
    Edit(GPT, "graphs are kept", (("    optimizer.step()\n", "    optimizer.step()\n    history.append(loss)\n"),)),
    Edit(
        GPT,
        "dropout by hand in each block",
        (("        return x\n\n\nclass GPT", "        return x * (torch.rand_like(x) > 0.1)\n\n\nclass GPT"),),
        held_out=True,
    ),
    Edit(
        RESNET,
        "one wait more in each micro-batch",
        (
            (
                "        meter.update(loss, outputs, targets)\n",
                "        meter.update(loss, outputs, targets)\n        latest = loss.item()\n",
            ),
        ),
    ),
    Edit(
        RESNET,
        "another operation in a helper",
        (
            (
                "        self.correct += predicted.eq(targets).sum().item()\n",
                "        self.correct += hits(predicted, targets)\n",
            ),
            (
                "class Meter:\n",
                (
                    "def hits(predicted, targets):\n    equal = predicted.eq(targets).sum()\n"
                    "    return int(equal.cpu().numpy()) + len(predicted.tolist()) * 0\n\n\nclass Meter:\n"
                ),
            ),
        ),
    ),
    Edit(
        RESNET,
        "the meter is updated before the backward pass",
        (
            (
                "        loss.backward()\n        meter.update(loss, outputs, targets)\n",
                "        meter.update(loss, outputs, targets)\n        loss.backward()\n",
            ),
        ),
    ),
    Edit(
        RESNET,
        "the norm is read for each parameter",
        (
            (
                (
                    "            grads = [p.detach().norm() for p in net.parameters()]\n"
                    "            log.append(torch.stack(grads).max().item())\n"
                ),
                "            log.append(max(p.detach().norm().item() for p in net.parameters()))\n",
            ),
        ),
    ),
    Edit(
        RESNET,
        "the log is written for each micro-batch",
        (
            (
                (
                    "            grads = [p.detach().norm() for p in net.parameters()]\n"
                    "            log.append(torch.stack(grads).max().item())\n"
                ),
                (
                    "        grads = [p.detach().norm() for p in net.parameters()]\n"
                    "        log.append(torch.stack(grads).max().item())\n"
                ),
            ),
        ),
    ),
    Edit(
        RESNET,
        "a second forward pass for the accuracy",
        (("        _, predicted = outputs.max(1)\n", "        _, predicted = net(pictures[:8]).max(1)\n"),),
    ),
    Edit(
        RESNET,
        "a helper finds classes by a mask",
        (
            ("        loss.backward()\n", "        loss.backward()\n        note(outputs, targets)\n"),
            (
                "def train(epoch):\n",
                "def note(scores, y):\n    log.append(scores.detach()[y == 0].shape)\n\n\ndef train(epoch):\n",
            ),
        ),
        held_out=True,
    ),
    Edit(
        UNET,
        "the loss is read where it is computed",
        (
            (
                "        return loss, masks_pred\n",
                "        self.epoch_loss += loss.item()\n        return loss, masks_pred\n",
            ),
            (
                "        self.global_step += 1\n        self.epoch_loss += loss.item()\n",
                "        self.global_step += 1\n",
            ),
        ),
    ),
    Edit(
        UNET,
        "the score is computed in each step",
        (
            (
                (
                    "        if self.global_step % 4 == 0:\n"
                    "            score = ((masks_pred > 0) == (true_masks > 0.5)).float().mean()\n"
                ),
                (
                    "        score = ((masks_pred > 0) == (true_masks > 0.5)).float().mean()\n"
                    "        if self.global_step % 4 == 0:\n"
                ),
            ),
        ),
    ),
    Edit(
        UNET,
        "the average is made without in-place operations",
        (
            (
                "                average.mul_(decay).add_(parameter, alpha=1 - decay)\n",
                "                average.copy_(decay * average + (1 - decay) * parameter)\n",
            ),
        ),
    ),
    Edit(
        UNET,
        "predictions are kept",
        (
            (
                "        self.global_step += 1\n",
                "        self.global_step += 1\n        self.records.append(masks_pred)\n",
            ),
        ),
    ),
    Edit(
        UNET,
        "a property reads the loss",
        (
            ("        if self.global_step % 4 == 0:\n", "        if self.is_worse and self.global_step % 4 == 0:\n"),
            ("        self.global_step += 1\n", "        self.global_step += 1\n        self.last = loss\n"),
            (
                "    def train_step(self",
                "    @property\n    def is_worse(self):\n        return bool(self.last > 0)\n\n    def train_step(self",
            ),
        ),
        held_out=True,
    ),
    Edit(
        UNET,
        "the gradients' norm is checked before the step",
        (
            (
                "        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n",
                (
                    "        if not torch.isfinite(nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)):\n"
                    "            return\n"
                ),
            ),
        ),
        held_out=True,
    ),
    Edit(
        GPT,
        "the model runs twice",
        (
            (
                "    logits, loss = model(X, Y)\n    X, Y",
                "    for _ in range(2):\n        logits, loss = model(X, Y)\n    X, Y",
            ),
        ),
    ),
    Edit(
        RESNET,
        "each micro-batch is computed twice",
        (
            (
                "        meter.update(loss, outputs, targets)\n",
                (
                    "        (criterion(net(inputs), targets) / 1e6).backward()\n"
                    "        meter.update(loss, outputs, targets)\n"
                ),
            ),
        ),
    ),
    Edit(
        UNET,
        "the average is updated twice",
        (("        self.update_ema()\n", "        for _ in range(2):\n            self.update_ema()\n"),),
    ),
    Edit(
        UNET,
        "gradients are computed for a model that is not trained",
        (
            (
                "            masks_pred = self.model(images)\n",
                "            masks_pred = self.model(images)\n            self.teacher = self.ema(images)\n",
            ),
        ),
    ),
)
