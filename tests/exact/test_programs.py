"""What real programs do with torch.cuda besides computing: graphs, precision, several devices, ranks, bindings."""

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from profiler.exact import private_api, virtual_cuda
from profiler.exact.model import Counts, EventKind

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")


def cuda(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, device="cuda")


# ---------------------------------------------------------------- CUDA graphs


def test_a_replay_computes_with_the_values_that_its_inputs_have_now(counts: Counts) -> None:
    model, x = nn.Linear(4, 2).cuda(), torch.zeros(3, 4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    counter = torch.zeros(1, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        counter += 1
    assert counter.item() == 0  # a capture runs nothing
    x.copy_(torch.ones(3, 4, device="cuda"))
    graph.replay()
    assert torch.equal(y, model(torch.ones(3, 4, device="cuda")))
    names = [event.name for event, _ in counts.events if event.kind is EventKind.LAUNCH]
    assert sorted(names) == ["graph capture", "graph capture", "graph replay"]


def test_a_captured_training_step_trains_like_an_eager_one() -> None:
    def train(steps: int, *, captured: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, capturable=True)
        x, y = cuda(3, 4), cuda(3, 2)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        graph = torch.cuda.CUDAGraph()
        step()
        if captured:
            with torch.cuda.graph(graph):
                loss = step()
        losses = []
        for _ in range(steps):
            if captured:
                graph.replay()
            else:
                loss = step()
            losses.append(loss.item())
        return losses

    with virtual_cuda():
        assert train(4, captured=True) == train(4, captured=False)


def test_the_host_may_not_wait_while_a_graph_is_captured(counts: Counts) -> None:
    x = cuda(1)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert torch.cuda.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            x.item()
    assert not torch.cuda.is_current_stream_capturing()


def test_graphed_callables(counts: Counts) -> None:
    model = nn.Linear(4, 2).cuda()
    expected = copy.deepcopy(model)
    graphed = torch.cuda.make_graphed_callables(model, (cuda(3, 4),))
    x = cuda(3, 4)
    graphed(x).sum().backward()
    expected(x).sum().backward()
    assert model.weight.grad is not None
    assert expected.weight.grad is not None
    assert torch.equal(model.weight.grad, expected.weight.grad)


# ---------------------------------------------------------------- precision

LOW: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x @ x,
    lambda x: functional.linear(x, x),
    lambda x: functional.gelu(x @ x),
    lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    lambda x: nn.LSTM(4, 4).cuda()(x[None])[0],
]
FULL: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: functional.layer_norm(x @ x, (4,)),
    lambda x: functional.softmax(x @ x, -1),
    lambda x: functional.cross_entropy(x @ x, torch.zeros(4, dtype=torch.long, device="cuda")),
    lambda x: (x @ x).exp(),
    lambda x: (x @ x).sum(),
    lambda x: (x @ x).pow(2),
    lambda x: (x @ x).norm(),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocasting_has_the_dtypes_of_cuda(counts: Counts, dtype: torch.dtype) -> None:
    with torch.autocast("cuda", dtype=dtype):
        assert [call(cuda(4, 4)).dtype for call in LOW] == [dtype] * len(LOW)
        assert [call(cuda(4, 4)).dtype for call in FULL] == [torch.float32] * len(FULL)
        assert all(call(cuda(4, 4)).is_cuda for call in (*LOW, *FULL))
        assert functional.layer_norm(torch.rand(4, 4) @ torch.rand(4, 4), (4,)).dtype is dtype  # the CPU's rule


# ---------------------------------------------------------------- several devices and ranks


def test_data_parallel_copies_to_each_device_and_back(counts: Counts) -> None:
    model = nn.DataParallel(nn.Linear(4, 2).cuda())
    output = model(cuda(6, 4))
    assert (output.device.index, output.shape) == (0, (6, 2))
    assert counts.total(EventKind.DEVICE_TO_DEVICE) == 4  # input, weight and bias to device 1; its output back
    output.sum().backward()
    assert model.module.weight.grad is not None


@pytest.fixture
def group(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    from tests.exact.ports import free_port

    for name, value in {"ADDR": "127.0.0.1", "PORT": str(free_port())}.items():
        monkeypatch.setenv(f"MASTER_{name}", value)
    torch.distributed.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda:0"))
    yield counts
    torch.distributed.destroy_process_group()


def test_a_barrier_of_nccl_waits(group: Counts) -> None:
    x = cuda(2)
    torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.AVG)
    group.clear()
    torch.distributed.barrier(device_ids=[0])
    assert [event.name for event, _ in group.events] == ["barrier"]


def test_wrappers_of_several_ranks(group: Counts) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    distributed = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[0])
    old = FullyShardedDataParallel(nn.Sequential(nn.Linear(4, 4)), device_id=0)
    new = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).cuda()
    for module in (*new, new):
        fully_shard(module)
    for model in (distributed, old, new):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(cuda(2, 4)).sum().backward()
        optimizer.step()
        assert all(parameter.device.type == "cuda" for parameter in model.parameters())


# ---------------------------------------------------------------- bindings


def test_types_of_tensors(counts: Counts) -> None:
    assert torch.cuda.FloatTensor(2, 3).shape == (2, 3)
    assert counts.total(EventKind.HOST_TO_DEVICE) == 0
    values = torch.cuda.LongTensor([1, 2])
    assert counts.total(EventKind.HOST_TO_DEVICE) == 1
    assert isinstance(values, torch.cuda.LongTensor)
    assert not isinstance(torch.zeros(2), torch.cuda.FloatTensor)
    assert torch.zeros(2).type(torch.cuda.HalfTensor).dtype is torch.float16
    assert torch.zeros(2).type("torch.cuda.FloatTensor").is_cuda
    assert not values.type("torch.FloatTensor").is_cuda


def test_streams_and_events_without_a_device_in_their_name(counts: Counts) -> None:
    stream, event = torch.Stream("cuda"), torch.Event("cuda")
    assert isinstance(stream, torch.Stream)
    with stream:
        event.record()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    cuda(2).record_stream(torch.cuda.current_stream())
    assert torch.device(1) == torch.device("cuda:1")
    assert nn.Linear(2, 2).to(1).weight.device.index == 1


def test_random_states(counts: Counts) -> None:
    with torch.random.fork_rng(devices=[0, 1]):
        first = cuda(2)
    assert torch.equal(first, cuda(2))
    torch.cuda.default_generators[1].get_state()


def test_files_are_loaded_by_functions_and_tables_of_devices(counts: Counts) -> None:
    file = io.BytesIO()
    torch.save({"x": cuda(2)}, file)
    for location, device in (
        (lambda storage, _: storage.cuda(1), "cuda:1"),
        (lambda storage, _: storage, "cpu"),
        ({"cuda:0": "cuda:1"}, "cuda:1"),
    ):
        file.seek(0)
        assert str(torch.load(file, map_location=location)["x"].device) == device


def test_files_are_copied_once_for_each_storage(counts: Counts) -> None:
    model = nn.Sequential(nn.LSTM(4, 4, num_layers=2), nn.Linear(4, 4)).cuda()
    file = io.BytesIO()
    counts.clear()
    torch.save({"model": model.state_dict(), "again": model.state_dict()}, file)
    assert counts.total(EventKind.DEVICE_TO_HOST) == 3  # the weights of a recurrent network share a storage
    file.seek(0)
    torch.load(file)
    assert counts.total(EventKind.HOST_TO_DEVICE) == 3
    assert counts.bytes(EventKind.HOST_TO_DEVICE) == counts.bytes(EventKind.DEVICE_TO_HOST)


def test_a_sparse_tensor_is_copied_in_parts(counts: Counts) -> None:
    torch.eye(4).to_sparse().to("cuda")
    assert sorted(event.size for event, _ in counts.events) == [4 * 4, 2 * 4 * 8]  # values, indices


def test_packed_sequences_keep_their_sizes_on_the_host(counts: Counts) -> None:
    packed = nn.utils.rnn.pack_padded_sequence(cuda(4, 2, 3), torch.tensor([4, 2]))
    output, _ = nn.LSTM(3, 5).cuda()(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(output)
    assert (packed.data.is_cuda, padded.is_cuda, packed.batch_sizes.is_cuda, lengths.is_cuda) == (
        True, True, False, False
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="should be a 1D CPU int64 tensor"):
        nn.utils.rnn.pack_padded_sequence(cuda(4, 2, 3), torch.tensor([4, 2], device="cuda"))


def test_functions_of_torch_func_and_torchscript_keep_the_device(counts: Counts) -> None:
    assert torch.func.grad(lambda x: (x**2).sum())(cuda(3)).is_cuda
    assert torch.func.vmap(lambda x: x * 2)(cuda(3, 2)).is_cuda
    assert torch.jit.script(nn.Linear(2, 2).cuda())(cuda(1, 2)).is_cuda  # type: ignore[no-untyped-call]


def test_saved_tensors_are_moved_to_the_host(counts: Counts) -> None:
    model = nn.Linear(4, 4).cuda()
    x = cuda(2, 4)
    counts.clear()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        output = model(x).relu()
    output.sum().backward()
    assert counts.total(EventKind.DEVICE_TO_HOST) > 0
    assert counts.total(EventKind.HOST_TO_DEVICE) == counts.total(EventKind.DEVICE_TO_HOST)


def test_choices_of_attention_and_flags(counts: Counts) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.backends.cuda.matmul.allow_tf32 = True
    query = cuda(1, 1, 8, 4)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            assert functional.scaled_dot_product_attention(query, query, query).is_cuda
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.mark("here")


def test_statistics_of_memory(counts: Counts) -> None:
    x = torch.zeros(1000, device="cuda")
    statistics = torch.cuda.memory_stats()
    assert statistics["active_bytes.all.current"] == torch.cuda.memory_allocated() >= 4096
    assert {"num_ooms", "reserved_bytes.all.peak", "segment.all.current"} <= statistics.keys()
    torch.cuda.memory._record_memory_history()
    assert torch.cuda.memory_snapshot() == []
    del x


def test_a_compiled_module_has_the_attributes_of_one(counts: Counts) -> None:
    model = nn.Linear(2, 2).cuda()
    compiled: Any = torch.compile(model, mode="max-autotune")
    assert compiled._orig_mod is model
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    counts.clear()
    compiled(cuda(1, 2)).sum().item()
    assert counts.syncs == 1


def test_torch_compiles_as_before_after_virtual_devices() -> None:
    @torch.compile(backend="eager")
    def place(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        return x * 2, x.device.type

    from torch._dynamo import config, trace_rules, utils

    def state() -> tuple[Any, ...]:
        settings = config.suppress_errors, config.fail_on_recompile_limit_hit
        return utils.run_node, *settings, list(trace_rules.SKIP_DIRS), trace_rules.SKIP_DIRS_RE.pattern

    with config.patch(fail_on_recompile_limit_hit=True):  # torch refuses it with suppress_errors
        before = state()
        assert place(torch.ones(2))[1] == "cpu"
        with virtual_cuda():
            assert torch.compile(place)(torch.ones(2, device="cuda"))[1] == "cuda"
            assert utils.run_node is not before[0]
        assert state() == before
        assert place(torch.ones(2))[1] == "cpu"


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize(
    ("options", "graphs"),
    [
        ({"dynamic": False}, 3),
        ({"disable": True}, 0),
        ({"dynamic": False, "recompile_limit": 1}, 1),
        ({"mode": "max-autotune", "fullgraph": True, "backend": "inductor"}, 2),  # the second one is for any shape
    ],
)
def test_options_of_torch_compile_other_than_its_backend_apply(options: dict[str, Any], graphs: int) -> None:
    from torch._dynamo.utils import counters

    if not options.keys() <= inspect.signature(torch.compile).parameters.keys():
        pytest.skip(f"torch {torch.__version__} lacks an option")
    torch._dynamo.reset()
    counters.clear()
    with virtual_cuda():
        compiled = torch.compile(_doubled, **options)
        for length in (2, 3, 4):
            assert torch.equal(compiled(torch.ones(length, device="cuda")).cpu(), torch.full((length,), 2.0))
    assert counters["stats"]["unique_graphs"] == graphs
    assert not counters["graph_break"]


def test_functions_run_as_they_are_written_where_torch_lacks_what_compiling_needs(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(private_api, "COMPILER_NAMES", ("_dynamo.absent",))
    with virtual_cuda() as counts:
        for _ in range(2):
            assert torch.compile(_doubled) is _doubled
        torch.compile()(_doubled)(torch.ones(2, device="cuda")).sum().item()
    assert counts.syncs == 1
    (warning,) = [each for each in recwarn if "torch.compile compiles nothing" in str(each.message)]
    assert "which has no torch._dynamo.absent" in str(warning.message)


class _Asking(nn.Module):
    """A network whose code asks for devices, or for values, where it is compiled."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.a, self.b = what, nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        h = h + torch.arange(16, device=x.device).to(h.dtype) + torch.zeros(16, device=self.a.weight.device)
        if not x.is_cuda:
            raise AssertionError
        if self.what == "value" and h.sum().item() > 1e9:
            h = h * 2
        elif self.what == "mask":
            h = h + h[h > 0].mean()
        elif self.what == "autocast":
            with torch.autocast(x.device.type, torch.bfloat16):
                h = h + self.a(x)
        return self.b(h.float())


@pytest.mark.parametrize(
    ("what", "breaks", "waits"),
    [("nothing", 0, 0), ("value", 1, 1), ("mask", 1, 2), ("autocast", 0, 0), ("shapes", 0, 0)],
)
def test_compiled_training_breaks_graphs_as_on_a_gpu_and_learns_the_same(what: str, breaks: int, waits: int) -> None:
    from torch._dynamo.utils import counters

    def train(*, is_compiled: bool) -> tuple[list[float], int, int]:
        torch.manual_seed(0)
        with virtual_cuda() as counts:
            model = _Asking(what).cuda()
            call = torch.compile(model) if is_compiled else model
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            losses, seen = [], 0
            for step in range(4):
                x = torch.rand(4 + step if what == "shapes" else 4, 8).cuda()
                counts.clear()
                loss = call(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen = counts.syncs
                assert loss.is_cuda
                losses.append(loss.item())
        return losses, seen, len(counters["graph_break"])

    torch._dynamo.reset()
    counters.clear()
    eager, compiled = train(is_compiled=False), train(is_compiled=True)
    assert eager[:2] == compiled[:2] == (eager[0], waits)
    assert compiled[2] == breaks
    assert counters["stats"]["unique_graphs"] > breaks  # Dynamo has traced all of it
