"""Public programs that virtual devices must run as they are, and how often they wait, by hand.

`waits` is what a reader of the program counts: for each of its lines, how often the host waits for the device there in
the whole run. An empty mapping: nobody has counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_EXAMPLES: Final = ("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
_YUNJEY: Final = ("yunjey/pytorch-tutorial", "0500d3df5a2a8080ccfccbc00aca0eacc21818db")
_LIGHTNING: Final = ("Lightning-AI/pytorch-lightning", "7f0c3436cd3f6ad3753125672024fc415cbcb414")
_PYG: Final = ("pyg-team/pytorch_geometric", "5c6461b2305ad068a6d61165b3c55852a11aaa41")
_CLEANRL: Final = ("vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb")
_GAN: Final = ("eriklindernoren/PyTorch-GAN", "36d3c77e5ff20ebe0aeefd322326a134a279b93e")
_IGNITE: Final = ("pytorch/ignite", "de08e799cfb55a6cf4aa778575d6bad725385453")


@dataclass(frozen=True, slots=True)
class Program:
    """One program and how it is started."""

    name: str
    source: tuple[str, str]
    """Repository on GitHub and commit; `quick start`: a file of tests/exact/public/quick."""
    script: str
    arguments: str = ""
    """`{data}` is the folder of its data, `{source}` that of the repository."""
    on_gpu: str = ""
    """Further arguments on the virtual device."""
    on_cpu: str = ""
    data: str = ""
    """Name in `data.MAKERS`."""
    data_at: str = ""
    """Where the program expects its data, from the working directory; empty: it is told by an argument."""
    waits: Mapping[int, int] = field(default_factory=dict)
    differs: str = ""
    """Why the program itself does something else on a GPU, so that the results need not be equal."""
    folders: tuple[str, ...] = ()
    """Folders that the program expects in its working directory."""
    links: tuple[str, ...] = ()
    """Files of the repository that the program expects in its working directory."""
    ranks: int = 1
    """Processes that torchrun starts."""


_GPU_ONLY: Final = "it runs on a GPU only"
_SHUFFLES: Final = "it shuffles the data only on a GPU"

PROGRAMS: Final = (
    Program("mnist", _EXAMPLES, "mnist/main.py", "--epochs 1", data="mnist", data_at="../data",
            differs=_SHUFFLES,
            waits={39: 8, 48: 1, 59: 2, 61: 1, 63: 1, 127: 8}),
    Program("mnist-rnn", _EXAMPLES, "mnist_rnn/main.py", "--epochs 1", "--accel", data="mnist", data_at="../data",
            waits={46: 8, 55: 1, 66: 2, 68: 1, 70: 1, 128: 13}),
    Program("mnist-forward-forward", _EXAMPLES, "mnist_forward_forward/main.py",
            "--epochs 2 --train_size 128 --test_size 64", data="mnist", data_at="data", differs=_SHUFFLES,
            waits={18: 128, 28: 22, 38: 4, 84: 2, 164: 2, 169: 1, 171: 2, 174: 1}),
    Program("vae", _EXAMPLES, "vae/main.py", "--epochs 1", data="mnist", data_at="../data", folders=("results",),
            waits={75: 10, 96: 2, 101: 2, 107: 1, 118: 1, 120: 1, 125: 1, 136: 1, 137: 1}),
    Program("siamese", _EXAMPLES, "siamese_network/main.py", "--epochs 1 --dry-run", data="mnist", data_at="../data",
            differs=_SHUFFLES,
            waits={197: 3, 206: 1, 221: 3, 223: 1, 225: 1, 288: 124}),
    Program("dcgan", _EXAMPLES, "dcgan/main.py",
            "--dataset fake --dry-run --ngf 8 --ndf 8 --manualSeed 0 --batchSize 16", "--accel",
            waits={162: 25, 203: 20, 229: 1, 237: 1, 246: 1, 258: 1, 263: 2, 265: 3, 269: 3, 276: 25, 277: 20}),
    Program("word-language-model", _EXAMPLES, "word_language_model/main.py",
            "--epochs 1 --emsize 32 --nhid 32 --data {data}", "--accel", data="words",
            waits={92: 3, 107: 11, 159: 24, 196: 56, 237: 4, 274: 4}),
    Program("word-language-model-transformer", _EXAMPLES, "word_language_model/main.py",
            "--model Transformer --epochs 1 --emsize 32 --nhid 32 --data {data}", "--accel", data="words"),
    Program("super-resolution", _EXAMPLES, "super_resolution/main.py",
            "--upscale_factor 8 --nEpochs 1 --batchSize 4 --testBatchSize 4 --threads 0", "--accel",
            data="photographs", data_at="dataset/BSDS300/images",
            waits={41: 8, 50: 4, 54: 2, 58: 2, 67: 4, 71: 2, 78: 8}),
    Program("regression", _EXAMPLES, "regression/main.py"),
    Program("gcn", _EXAMPLES, "gcn/main.py", "--epochs 2", data="cora", data_at="."),
    Program("gat", _EXAMPLES, "gat/main.py", "--epochs 1", data="cora", data_at="."),
    Program("imagenet", _EXAMPLES, "imagenet/main.py", "-a shufflenet_v2_x0_5 -b 8 -j 0 --epochs 1 {data}",
            data="images"),
    Program("imagenet-workers", _EXAMPLES, "imagenet/main.py",
            "-a shufflenet_v2_x0_5 -b 8 -j 2 --epochs 1 --gpu 0 {data}", data="images"),
    Program("ddp-single-gpu", _EXAMPLES, "distributed/ddp-tutorial-series/single_gpu.py", "2 1",
            differs=_GPU_ONLY,
            waits={17: 2, 33: 128, 34: 128, 40: 4}),
    Program("ddp", _EXAMPLES, "distributed/ddp/example.py", ranks=2, differs=_GPU_ONLY),
    Program("ddp-multigpu", _EXAMPLES, "distributed/ddp-tutorial-series/multigpu_torchrun.py", "2 1", ranks=2,
            differs=_GPU_ONLY),
    Program("tensor-parallel", _EXAMPLES, "distributed/tensor_parallelism/tensor_parallel_example.py", ranks=2,
            differs=_GPU_ONLY),
    Program("nanogpt", ("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291"), "train.py",
            "{source}/config/train_shakespeare_char.py --dataset={data} --compile=False --dtype=float32 --eval_iters=2"
            " --log_interval=2 --block_size=32 --batch_size=4 --n_layer=2 --n_head=2 --n_embd=32 --max_iters=10"
            " --eval_interval=5 --out_dir=out", "--device=cuda", "--device=cpu", data="characters",
            links=("configurator.py",), differs="its optimizer is fused only on a GPU"),
    Program("mingpt-adder", ("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26"),
            "projects/adder/adder.py", "--trainer.max_iters=21 --trainer.num_workers=0",
            waits={150: 2, 153: 100, 167: 100, 172: 40, 185: 3, 200: 44}),
    Program("mingpt-chargpt", ("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26"),
            "projects/chargpt/chargpt.py",
            "--trainer.max_iters=12 --trainer.num_workers=2 --trainer.batch_size=8 --model.model_type=gpt-nano"
            " --data.block_size=64", data="words", data_at="."),
    Program("makemore", ("karpathy/makemore", "988aa59e4d8fefa526d06f3b453ad116258398d4"), "makemore.py",
            "-i {source}/names.txt --max-steps 21 -n 0", "--device cuda",
            waits={652: 57, 676: 42, 689: 21, 694: 3}),
    Program("bigram", ("karpathy/ng-video-lecture", "52201428ed7b46804849dea0b3ccf0de9df1a5c3"), "bigram.py",
            links=("input.txt",),
            waits={43: 14_000, 55: 4_000, 99: 1, 122: 1}),
    Program("gan", _GAN, "implementations/gan/gan.py", "--n_epochs 1", data="mnist", data_at="../../data/mnist",
            waits={92: 25, 93: 6, 129: 4, 138: 4, 165: 8, 170: 3}),
    Program("wgan", _GAN, "implementations/wgan/wgan.py", "--n_epochs 1", data="mnist", data_at="../../data/mnist",
            waits={88: 25, 89: 6, 120: 4, 129: 4, 162: 2, 166: 3}),
    Program("tutorial-feedforward", _YUNJEY, "tutorials/01-basics/feedforward_neural_network/main.py",
            data="mnist", data_at="../../data",
            waits={51: 4, 62: 15, 63: 15, 84: 2, 85: 2, 89: 2, 94: 4}),
    Program("tutorial-cnn", _YUNJEY, "tutorials/02-intermediate/convolutional_neural_network/main.py",
            data="mnist", data_at="../../data",
            waits={58: 16, 68: 15, 69: 15, 90: 2, 91: 2, 95: 2, 100: 16}),
    Program("tutorial-rnn", _YUNJEY, "tutorials/02-intermediate/recurrent_neural_network/main.py",
            data="mnist", data_at="../../data",
            waits={50: 8, 51: 8, 60: 10, 71: 6, 72: 6, 93: 2, 94: 2, 98: 2, 103: 3}),
    Program("tutorial-birnn", _YUNJEY, "tutorials/02-intermediate/bidirectional_recurrent_neural_network/main.py",
            data="mnist", data_at="../../data"),
    Program("tutorial-vae", _YUNJEY, "tutorials/03-advanced/variational_autoencoder/main.py",
            data="mnist", data_at="../../data",
            waits={67: 10, 74: 30, 94: 15, 96: 15, 101: 15}),
    Program("pyg-gcn", _PYG, "examples/gcn.py", "--epochs 5", data="planetoid", data_at="{source}/data/Planetoid"),
    Program("pyg-gat", _PYG, "examples/gat.py", "--epochs 5", data="planetoid", data_at="{source}/data/Planetoid"),
    Program("pyg-sgc", _PYG, "examples/sgc.py", data="planetoid", data_at="{source}/data/Cora",
            waits={38: 2, 45: 200, 54: 300, 55: 900}),
    Program("cleanrl-ppo", _CLEANRL, "cleanrl/ppo.py", "--total-timesteps 1024"),
    Program("cleanrl-dqn", _CLEANRL, "cleanrl/dqn.py", "--total-timesteps 400 --learning-starts 200"),
    Program("ignite-mnist", _IGNITE, "examples/mnist/mnist.py", "--epochs 1", data="mnist", data_at="."),
    Program("timm", ("huggingface/pytorch-image-models", "aa4b5850c1543fa488abf260f18390eda46cf85d"), "train.py",
            "--data-dir {data} --num-classes 2 --model resnet10t --img-size 64 -b 8 --epochs 1 --workers 1"
            " --sched step --output out", "--device cuda", "--device cpu", data="images"),
    Program("lightning-bug-report", _LIGHTNING, "examples/pytorch/bug_report/bug_report_model.py"),
    Program("fabric-mnist", _LIGHTNING, "examples/fabric/image_classifier/train_fabric.py", "--epochs 1",
            data="mnist", data_at="{source}/Datasets"),
    Program("trainer", ("quick start", ""), "trainer.py"),
    Program("lightning", ("quick start", ""), "lightning_fit.py"),
    Program("accelerate", ("quick start", ""), "accelerate_loop.py"),
)  # fmt: skip
