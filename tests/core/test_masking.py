"""What is masked of commands and source lines, and what stays readable."""

from __future__ import annotations

import shlex

import pytest

from profiler.core.masking import MASK, masked, masked_command, masked_source, masked_word, recorded_arguments

SECRET = "hunter2"


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --api-key=hunter2",
        "python train.py --api-key hunter2 --lr 3",
        "python train.py -password hunter2",
        "python train.py --wandbApiKey hunter2 --HFToken=hunter2 --access_keys hunter2 --db-pass hunter2",
        "python train.py --credentials hunter2 --hotkey hunter2 --basicAuth hunter2 --passphrase=hunter2",
        "env WANDB_API_KEY=hunter2 python train.py",
        "python train.py logger.token=hunter2 +wandb.key=hunter2 ++secrets.hub=hunter2",
        "python train.py '--header=Authorization: Bearer hunter2' -H 'X-Api-Key: hunter2'",
        "curl -H 'Authorization: Basic hunter2'",
        "sh -c 'export TOKEN=hunter2; python train.py --password hunter2'",
        "sh -c 'TOKEN=\"two hunter2\" python train.py'",
        "python train.py https://me:hunter2@host/x --hub=https://hunter2@host",
        "python train.py 'https://host/x?page=2&token=hunter2'",
        "srun --export=ALL,TOKEN=hunter2 python train.py",
        "docker run -e HF_TOKEN=hunter2 image python train.py",
        """python train.py '{"api_key": "hunter2", "lr": 1}'""",
        "torchrun --nproc-per-node 2 train.py --api-key hunter2",
        "python -c 'login(key=\"hunter2\")'",
        "'train --api-key hunter2'",
        "python train.py '--password=a;b&hunter2' --token 123456",
        "sh -c 'python a.py --key hunter2 && python train.py'",
        "bash -lc 'cd x; TOKEN=\"a;\"hunter2 python train.py --key a\\ hunter2'",
        "sh -c 'TOKEN=$(echo hunter2) python train.py'",
        """python train.py '{"wandb": {"api_key": ["hunter2", "hunter2"]}}' 'model={secrets: [a, hunter2]}'""",
        "python train.py --yaml 'lr: 1\npassword: |\n  hunter2\nsteps: 2'",
        "python train.py --api-keys hunter2 hunter2 --api-tokens hunter2 --pw hunter2 --cookie a=hunter2",
        "python train.py MODEL.API_KEY hunter2 SOLVER.LR 0.1",
        "python train.py --clé_token=hunter2 'a.b[\"token\"]=hunter2' TOKEN+=hunter2",
        "python train.py postgres://me:a/hunter2@host/x --proxy me:hunter2@host:3128 'redis://:#hunter2@host'",
        "python train.py hf_hunter2hunter2hunter2hunter2hunter2 https://hooks.slack.com/services/T0/B0/hunter2",
        "python train.py --model-key hunter2 --data-token a1-hunter2 --label_api_key=hunter2 --key hunter2",
        'python -c \'headers = {"Authorization": "Bearer " + "hunter2"}\'',
    ],
)
def test_secrets_are_masked(command: str) -> None:
    words = shlex.split(command)
    shown = masked(words)
    assert SECRET not in " ".join(shown)
    assert "123456" not in " ".join(shown)
    assert len(shown) == len(words)
    assert masked(shown) == shown
    assert not masked_word(words)
    assert MASK in masked_word(shown)
    assert SECRET not in masked_command(command)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --tokens 512 --max-tokens=4096 --tokenizer path --num-tokens 8",
        "python train.py --num-key-value-heads 8 --key-dim=64 --max-token 4096 --pad-token-id 0 --token-dropout 0.1",
        "python train.py --keys a,b --author me --keyboard us --tokenize true --authority x --monkeys 3",
        "python train.py --use-auth-token true --secret=False --save-key --lr 3",
        "python -m package.train --epochs 3 data/key/x.bin https://host/path?page=2",
        "python train.py model.n_token=50 optimizer.lr=0.1 glob/***/x",
        "python -c 'for key in keys: print(key, token)'",
        "python --auth train.py",
        "python train.py --sort-key length --monitor-key val/loss --ema-key model_ema --token_type bpe --rng-key 42",
        "python train.py --bos_token '<s>' --mask_token '[MASK]' --image_token '<|image_1|>' --tgt_lang_token en_XX",
        "python train.py --token-file data/tokens.bin --token_path=/run/secrets/token data.image_key=jpg;png",
        """python train.py '{"pad_token_id":0,"sort_key":"length","lr":1}' MODEL.CLS_TOKEN True""",
        "sh -c 'python train.py --sort-key length'",
        "python train.py http://host:8080/x@y https://host/@me image:tag@sha256:1 hf_model_for_classification",
    ],
)
def test_others_stay_readable(command: str) -> None:
    words = tuple(shlex.split(command))
    assert masked(words) == words
    assert not masked_word(words)
    assert masked_command(command) == command


def test_a_text_that_is_no_shell_syntax_is_masked() -> None:
    assert masked_command("train --api-key=hunter2 'x") == "train --api-key=*** 'x"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python -u train.py --lr 3", "python train.py ***"),
        ("python train.py", "python train.py"),
        ("python -m package.train --lr 3", "python -m package.train ***"),
        ("python -mpackage.train --lr 3", "python ***"),
        ("torchrun --nproc-per-node 2 train.py --lr 3", "torchrun train.py ***"),
        ("python -m torch.distributed.run -m train", "python -m torch.distributed.run -m train"),
        ("env A=1 python train.py", "env python train.py ***"),
        ("sh -c 'python train.py'", "sh ***"),
        ("./train", "./train"),
        ("", ""),
    ],
)
def test_arguments_are_left_out(command: str, shown: str) -> None:
    words = recorded_arguments(shlex.split(command), arguments=False)
    assert " ".join(words) == shown
    assert recorded_arguments(words, arguments=False) == words
    assert bool(masked_word(words)) == ("***" in shown)


def test_the_option_of_a_mask_is_named() -> None:
    assert masked_word(("python", "train.py", "--api-key", "***")) == "--api-key ***"


@pytest.mark.parametrize(
    "line",
    [
        'api_key = "hunter2"',
        "token: str = f'hunter2'",
        'wandb.login(key="hunter2", lr=3)',
        'os.environ["API_KEY"] = "hunter2"',
        'os.environ.setdefault("WANDB_API_KEY", "hunter2")',
        '{"token": "hunter2", "name": "b"}',
        'headers={"Authorization": f"Bearer hunter2"}',
        'connect("postgres://me:hunter2@host/x")',
        'SECRET = """hunter2',
        'password = SecretStr("hunter2")',
        'password = ("hunter2")',
        'connect("host=h password=hunter2 dbname=d")',
        'get(address, auth=("me", "hunter2"))',
        '{"Authorization": "Bearer " + "hunter2"}',
        'token = args.token or "hunter2"',
        'token = os.environ.get("HF_TOKEN") or "hunter2"',
        'login("ghp_hunter2hunter2hunter2hunter2hunter2")',
    ],
)
def test_literals_in_source_are_masked(line: str) -> None:
    assert SECRET not in masked_source(line)
    assert MASK in masked_source(line)
    assert masked_source(masked_source(line)) == masked_source(line)


@pytest.mark.parametrize(
    "line",
    [
        'x = batch["key"].to("cuda")',
        'key = batch["input_ids"]',
        'if key == "loss": total += value',
        'for key in ("a", "b"):',
        'token = os.environ["HF_TOKEN"]',
        "attention(query, key, value)",
        'tokens = tokenizer("a text")',
        "x[1:n@m], {a:b@c}",
        "print(f'token={token} key={x}', 'key=%s' % x)",
        'train(sort_key="length", bos_token="<s>")',
    ],
)
def test_other_source_stays_readable(line: str) -> None:
    assert masked_source(line) == line


@pytest.mark.parametrize(
    "word",
    ["a" * 200_000, "a." * 100_000, "a=" * 100_000, " " * 200_000, "'a" * 100_000, "a:" * 100_000, "://a:" * 40_000],
)
def test_long_words_take_no_quadratic_time(word: str) -> None:
    """It would take minutes, and end with the time limit of a test."""
    assert masked(("python", "train.py", word))[2] == word
    assert masked_source(word) == word
