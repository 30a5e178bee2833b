"""Changes of three training programs: honest ones, which do the same work, and planted faults, which do more or wait
earlier. `gate_refactorings` counts how the gate judges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SCRIPTS: Final = Path(__file__).parent / "gate_scripts"
GPT: Final = "char_gpt.py"
RESNET: Final = "cifar_resnet.py"
UNET: Final = "unet_amp.py"


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a program."""

    program: str
    name: str
    replacements: tuple[tuple[str, str], ...]
    """Texts that occur in the program once, and what stands in their place."""
    files: Mapping[str, str] = field(default_factory=dict)
    """New files beside the program."""
    held_out: bool = False
    """Whether the gate was finished before it judged this change for the first time."""

    def text(self) -> str:
        """The program after the change."""
        text = (SCRIPTS / self.program).read_text()
        for old, new in self.replacements:
            assert text.count(old) == 1, f"{self.name}: {old!r} occurs {text.count(old)} times"
            text = text.replace(old, new)
        return text


HONEST: Final = (
    Edit(
        GPT,
        "extract a helper around item()",
        (
            ("        lossf = loss.item()\n", "        lossf = to_float(loss)\n"),
            ("model = GPT()", "def to_float(value):\n    return value.item()\n\n\nmodel = GPT()"),
        ),
    ),
    Edit(
        GPT,
        "split a statement",
        (
            (
                "        x = x + self.attn(self.ln_1(x))\n",
                "        normed = self.ln_1(x)\n        attended = self.attn(normed)\n        x = x + attended\n",
            ),
        ),
    ),
    Edit(
        GPT,
        "rename variables",
        (
            ("    logits, loss = model(X, Y)\n    X, Y", "    output, objective = model(X, Y)\n    X, Y"),
            ("    loss.backward()", "    objective.backward()"),
            ("(logits.argmax(-1) == Y)", "(output.argmax(-1) == Y)"),
            ("lossf = loss.item()", "lossf = objective.item()"),
        ),
    ),
    Edit(
        GPT,
        "move a function to another file",
        (
            (
                "def get_lr(it):\n    return 1e-3 * 0.5 * (1.0 + math.cos(math.pi * it / max_iters))\n\n\n",
                (
                    "from measures import accuracy_of\n\n\n"
                    "def get_lr(it):\n    return 1e-3 * 0.5 * (1.0 + math.cos(math.pi * it / max_iters))\n\n\n"
                ),
            ),
            ("(logits.argmax(-1) == Y).float().mean().item()", "accuracy_of(logits, Y)"),
        ),
        {
            "measures.py": "def accuracy_of(scores, labels):\n"
            "    hits = scores.argmax(-1) == labels\n    return hits.float().mean().item()\n"
        },
    ),
    Edit(
        GPT,
        "a comprehension becomes a loop",
        (
            (
                "    x = torch.stack([data[i : i + block_size] for i in ix.tolist()])\n",
                (
                    "    rows = []\n    for i in ix.tolist():\n        rows.append(data[i : i + block_size])\n"
                    "    x = torch.stack(rows)\n"
                ),
            ),
        ),
    ),
    Edit(
        GPT,
        "one helper for two waits",
        (
            (
                "accuracy = (logits.argmax(-1) == Y).float().mean().item()",
                "accuracy = scalar((logits.argmax(-1) == Y).float().mean())",
            ),
            ("        lossf = loss.item()\n", "        lossf = scalar(loss)\n"),
            ("model = GPT()", "def scalar(tensor):\n    return tensor.item()\n\n\nmodel = GPT()"),
        ),
    ),
    Edit(
        GPT,
        "the loop body becomes a function",
        (
            (
                (
                    "    logits, loss = model(X, Y)\n    X, Y = get_batch()\n    loss.backward()\n"
                    "    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n"
                    "    optimizer.zero_grad(set_to_none=True)\n"
                ),
                "    logits, loss, X, Y = train_step(X, Y)\n",
            ),
            (
                "model = GPT()",
                (
                    "def train_step(inputs, targets):\n"
                    "    prediction, loss = model(inputs, targets)\n    batch = get_batch()\n    loss.backward()\n"
                    "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n"
                    "    optimizer.zero_grad(set_to_none=True)\n    return prediction, loss, *batch\n\n\nmodel = GPT()"
                ),
            ),
        ),
        held_out=True,
    ),
    Edit(
        RESNET,
        "inline a method",
        (
            (
                "        meter.update(loss, outputs, targets)\n",
                (
                    "        meter.total += loss.item()\n        predicted = outputs.max(1)[1]\n"
                    "        meter.correct += predicted.eq(targets).sum().item()\n"
                    "        meter.count += targets.size(0)\n"
                ),
            ),
            (
                (
                    "    def update(self, loss, outputs, targets):\n        self.total += loss.item()\n"
                    "        _, predicted = outputs.max(1)\n"
                    "        self.correct += predicted.eq(targets).sum().item()\n"
                    "        self.count += targets.size(0)\n"
                ),
                "",
            ),
        ),
    ),
    Edit(
        RESNET,
        "a method becomes a function",
        (
            ("        meter.update(loss, outputs, targets)\n", "        update(meter, loss, outputs, targets)\n"),
            ("    def update(self, loss, outputs, targets):\n", "\ndef update(self, loss, outputs, targets):\n"),
            ("        self.total += loss.item()\n", "    self.total += loss.item()\n"),
            ("        _, predicted = outputs.max(1)\n", "    _, predicted = outputs.max(1)\n"),
            (
                "        self.correct += predicted.eq(targets).sum().item()\n",
                "    self.correct += predicted.eq(targets).sum().item()\n",
            ),
            ("        self.count += targets.size(0)\n", "    self.count += targets.size(0)\n"),
        ),
    ),
    Edit(
        RESNET,
        "reorder independent statements",
        (
            (
                (
                    "        self.total += loss.item()\n        _, predicted = outputs.max(1)\n"
                    "        self.correct += predicted.eq(targets).sum().item()\n"
                ),
                (
                    "        _, predicted = outputs.max(1)\n"
                    "        self.correct += predicted.eq(targets).sum().item()\n        self.total += loss.item()\n"
                ),
            ),
        ),
    ),
    Edit(
        RESNET,
        "a decorator around a method that waits",
        (
            ("    def update(self, loss", "    @counted\n    def update(self, loss"),
            (
                "class Meter:\n",
                (
                    "def counted(function):\n    def call(*args):\n        calls.append(len(calls))\n"
                    "        return function(*args)\n\n    return call\n\n\ncalls = []\n\n\nclass Meter:\n"
                ),
            ),
        ),
    ),
    Edit(
        RESNET,
        "extract the forward pass",
        (
            (
                (
                    "        outputs = net(inputs)\n        loss = criterion(outputs, targets) / accumulation_steps\n"
                    "        loss.backward()\n"
                ),
                "        loss, outputs = compute(inputs, targets)\n        loss.backward()\n",
            ),
            (
                "def train(epoch):\n",
                (
                    "def compute(pictures, labels):\n    scores = net(pictures)\n"
                    "    return criterion(scores, labels) / accumulation_steps, scores\n\n\ndef train(epoch):\n"
                ),
            ),
        ),
    ),
    Edit(
        RESNET,
        "a loop variable is renamed and the batch moved by a helper",
        (
            (
                (
                    "    for batch_idx, (inputs, targets) in enumerate(trainloader):\n"
                    "        inputs, targets = inputs.to(device), targets.to(device)\n        outputs = net(inputs)\n"
                    "        loss = criterion(outputs, targets) / accumulation_steps\n"
                ),
                (
                    "    for index, batch in enumerate(trainloader):\n"
                    "        inputs, targets = to_device(batch)\n        outputs = net(inputs)\n"
                    "        loss = criterion(outputs, targets) / accumulation_steps\n"
                ),
            ),
            ("if (batch_idx + 1) % accumulation_steps == 0:", "if (index + 1) % accumulation_steps == 0:"),
            (
                "def train(epoch):\n",
                "def to_device(batch):\n    return [each.to(device) for each in batch]\n\n\ndef train(epoch):\n",
            ),
        ),
    ),
    Edit(
        RESNET,
        "extract a helper for the largest norm",
        (
            (
                (
                    "            grads = [p.detach().norm() for p in net.parameters()]\n"
                    "            log.append(torch.stack(grads).max().item())\n"
                ),
                "            log.append(largest_norm(net))\n",
            ),
            (
                "def train(epoch):\n",
                (
                    "def largest_norm(module):\n    norms = []\n    for weight in module.parameters():\n"
                    "        norms.append(weight.detach().norm())\n    return torch.stack(norms).max().item()\n\n\n"
                    "def train(epoch):\n"
                ),
            ),
        ),
        held_out=True,
    ),
    Edit(
        UNET,
        "extract a context manager",
        (
            (
                '        with torch.autocast("cpu", dtype=torch.bfloat16):\n',
                "        with mixed_precision():\n",
            ),
            ("import copy\n", "import copy\nfrom contextlib import contextmanager\n"),
            (
                "class Trainer:\n",
                (
                    "@contextmanager\ndef mixed_precision():\n"
                    '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        yield\n\n\nclass Trainer:\n'
                ),
            ),
        ),
    ),
    Edit(
        UNET,
        "extract a method that logs",
        (
            (
                (
                    "        if self.global_step % 4 == 0:\n"
                    "            score = ((masks_pred > 0) == (true_masks > 0.5)).float().mean()\n"
                    '            self.records.append({"step": self.global_step, "loss": loss.item(), '
                    '"score": score.item()})\n'
                ),
                (
                    "        if self.global_step % 4 == 0:\n            self.log(loss, masks_pred, true_masks)\n\n"
                    "    def log(self, objective, logits, labels):\n"
                    "        agreement = ((logits > 0) == (labels > 0.5)).float().mean()\n"
                    '        entry = {"step": self.global_step}\n        entry["loss"] = objective.item()\n'
                    '        entry["score"] = agreement.item()\n        self.records.append(entry)\n'
                ),
            ),
        ),
    ),
    Edit(
        UNET,
        "one helper for three waits",
        (
            ("        self.epoch_loss += loss.item()\n", "        self.epoch_loss += as_number(loss)\n"),
            (
                '"loss": loss.item(), "score": score.item()',
                '"loss": as_number(loss), "score": as_number(score)',
            ),
            ("class Trainer:\n", "def as_number(value):\n    return value.item()\n\n\nclass Trainer:\n"),
        ),
    ),
    Edit(
        UNET,
        "split the loss and its sums into statements",
        (
            (
                (
                    "    inter = 2 * (pred * target).sum()\n    sets = pred.sum() + target.sum()\n"
                    "    return 1 - (inter + eps) / (sets + eps)\n"
                ),
                (
                    "    product = pred * target\n    overlap = product.sum()\n    inter = 2 * overlap\n"
                    "    predicted, wanted = pred.sum(), target.sum()\n    sets = predicted + wanted\n"
                    "    ratio = (inter + eps) / (sets + eps)\n    return 1 - ratio\n"
                ),
            ),
        ),
    ),
    Edit(
        UNET,
        "the wait is later",
        (
            ("        self.epoch_loss += loss.item()\n", ""),
            ('"score": score.item()})\n', '"score": score.item()})\n        self.epoch_loss += loss.item()\n'),
        ),
        held_out=True,
    ),
    Edit(
        UNET,
        "a class is moved to another file",
        (
            (
                (
                    "    inter = 2 * (pred * target).sum()\n    sets = pred.sum() + target.sum()\n"
                    "    return 1 - (inter + eps) / (sets + eps)\n"
                ),
                "    return smooth_dice(pred, target, eps)\n",
            ),
            ("from torch.nn import functional as F\n", "from torch.nn import functional as F\nfrom dice import *\n"),
        ),
        {
            "dice.py": "def smooth_dice(probabilities, labels, smooth):\n"
            "    intersection = 2 * (probabilities * labels).sum()\n"
            "    total = probabilities.sum() + labels.sum()\n"
            "    return 1 - (intersection + smooth) / (total + smooth)\n"
        },
        held_out=True,
    ),
)
