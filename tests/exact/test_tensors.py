"""What programs do with tensors on virtual devices, and which operations count as waits and copies."""

from __future__ import annotations

import copy
import io
import linecache
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from profiler.exact import virtual_cuda
from profiler.exact.model import Counts, EventKind

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")


def cuda(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, device="cuda")


# ---------------------------------------------------------------- devices


def test_a_program_sees_the_devices(counts: Counts) -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    assert torch.cuda.get_device_capability() == (9, 0)
    x = torch.zeros(2, device="cuda")
    assert (x.device, x.is_cuda, x.is_cpu, x.get_device()) == (torch.device("cuda:0"), True, False, 0)
    assert x.type() == "torch.cuda.FloatTensor"
    assert torch.zeros(2).device.type == "cpu"
    assert torch.zeros(2, device="cuda:1").device.index == 1
    with torch.cuda.device(1):
        assert torch.zeros(2, device="cuda").device.index == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(2, device="cuda:2")
    assert counts.syncs == 0


def test_torch_is_as_before_afterwards() -> None:
    before = torch.cuda.is_available, torch.Generator, torch.compile, torch.autocast.__init__, torch.accelerator
    with virtual_cuda():
        x = torch.zeros(2, device="cuda")
    assert before == (
        torch.cuda.is_available, torch.Generator, torch.compile, torch.autocast.__init__, torch.accelerator
    )  # fmt: skip
    assert x.device.type == "cpu"
    assert not torch.cuda.is_available()


def test_a_result_is_on_the_device_of_its_arguments(counts: Counts) -> None:
    x = cuda(3, 4)
    results = [
        x + 1, x @ x.T, x.view(12), x[0], x.sum(), torch.cat([x, x]), functional.relu(x), x.detach(), x.clone(), x.T,
        torch.zeros_like(x), x.new_zeros(3), x.float(), x.half(), copy.deepcopy(x),
        *torch.split(x, 1), x.topk(2).values,
        nn.Parameter(x), torch.where(x > 0, x, 0.0),
    ]  # fmt: skip
    assert all(result.is_cuda for result in results)
    assert not torch.zeros_like(x, device="cpu").is_cuda
    assert counts.syncs == 0


def test_modules_and_gradients(counts: Counts) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).to("cuda")
    seen: list[str] = []
    hidden = model[0](cuda(5, 4))
    hidden.register_hook(lambda gradient: seen.append(gradient.device.type))
    model[2](model[1](hidden)).sum().backward()
    assert all(parameter.is_cuda and parameter.grad is not None for parameter in model.parameters())
    assert {parameter.grad.device.type for parameter in model.parameters() if parameter.grad is not None} == {"cuda"}
    assert seen == ["cuda"]


def test_results_equal_those_of_the_cpu() -> None:
    def train(device: str) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 3)).to(
            device
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(5):
            x, y = torch.randn(8, 1, 8, 8).to(device), torch.randint(3, (8,)).to(device)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train("cpu")
    with virtual_cuda() as counts:
        assert train("cuda") == expected
    assert counts.total(EventKind.HOST_TO_DEVICE) == 4 + 2 * 5  # parameters and batches


def test_autograd_functions_of_the_program_see_the_device(counts: Counts) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            assert gradient.is_cuda
            return gradient * torch.full((), 2.0, device=gradient.device)

    x = cuda(3).requires_grad_()
    Double.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3


# ---------------------------------------------------------------- what waits

WAITS: list[Callable[[], object]] = [
    lambda: cuda(1).item(),
    lambda: float(cuda(1)),
    lambda: int(cuda(1)),
    lambda: bool(cuda(1) > 0),
    lambda: cuda(2).tolist(),
    lambda: str(cuda(2)),
    lambda: f"{cuda(1).sum():.2f}",
    lambda: cuda(2).cpu(),
    lambda: cuda(2).to("cpu"),
    lambda: cuda(2).to("cpu", torch.float64),
    lambda: torch.zeros(2).copy_(cuda(2)),
    lambda: torch.zeros(2).to("cuda"),
    lambda: torch.zeros(2).cuda(),
    lambda: torch.zeros(2).pin_memory().cuda(),
    lambda: cuda(2).copy_(torch.zeros(2)),
    lambda: torch.tensor([1.0, 2.0], device="cuda"),
    lambda: torch.as_tensor([1.0, 2.0], device="cuda"),
    lambda: cuda(2).nonzero(),
    lambda: torch.nonzero(cuda(2)),
    lambda: torch.where(cuda(2) > 0.5),
    lambda: torch.masked_select(cuda(2), cuda(2) > 0.5),
    lambda: cuda(2).unique(),
    lambda: torch.equal(cuda(2), cuda(2)),
    lambda: torch.allclose(cuda(2), cuda(2)),
    lambda: torch.linalg.inv(torch.eye(2, device="cuda")),
    lambda: torch.normal(cuda(2), cuda(2)),
    lambda: torch.full((2,), cuda(1)[0], device="cuda"),
    lambda: cuda(2, 2).to_sparse(),
    lambda: cuda(3)[[0, 2]],
    lambda: cuda(3)[range(2),],
    lambda: torch.save(cuda(2), io.BytesIO()),
    lambda: functional.one_hot(torch.zeros(3, dtype=torch.long, device="cuda")),
    lambda: (torch.cuda.synchronize(), 0),
    lambda: torch.cuda.current_stream().synchronize(),
    lambda: (torch.cuda.empty_cache(), 0),
    lambda: torch.cuda.Event().synchronize(),
]


@pytest.mark.parametrize("number", range(len(WAITS)))
def test_it_waits_once_at_its_line(counts: Counts, number: int) -> None:
    call = WAITS[number]
    call()
    assert list(counts.sites().values()) == [1], linecache.getline(__file__, call.__code__.co_firstlineno)
    assert list(counts.sites()) == [f"{__file__}:{call.__code__.co_firstlineno}"]


def test_masks_wait_and_fills_do_not(counts: Counts) -> None:
    x = cuda(4)
    x[x > 0.5] = 0.0  # torch fills: the positions stay on the device
    x[1:3] = 1.0
    assert counts.syncs == 0
    x[x > 0.5]
    assert counts.syncs == 1
    x[x > 0.5] = cuda(1)
    assert counts.syncs == 2


def number(value: int) -> torch.Tensor:
    return torch.tensor(value).pin_memory().to("cuda", non_blocking=True)


SEVERAL_WAITS: list[tuple[str, int, Callable[[torch.Tensor], object]]] = [
    ("slice", 1, lambda x: x[number(1) :]),
    ("slice", 2, lambda x: x[:, number(0) : number(2)]),
    ("slice", 3, lambda x: x[number(0) : number(2) : number(1), None]),
    ("slice", 2, lambda x: x.__setitem__(slice(number(0), number(2)), 1.0)),
    ("slice", 2, lambda _: torch.zeros(4)[number(0) : number(2)]),
    ("slice", 2, lambda x: [x[span] for span in [slice(0, number(2))] * 2]),
    ("index", 2, lambda x: x[number(1), ..., number(0)]),
    ("index", 1, lambda _: torch.zeros(4)[number(1)]),
    ("repeat_interleave", 2, lambda x: torch.repeat_interleave(x[0], torch.ones_like(x[0], dtype=torch.long))),
    ("repeat_interleave", 2, lambda x: x.repeat_interleave(number(3), dim=0)),
    ("sub", 1, lambda x: torch.sub(x, x, alpha=x[0, 0])),
    ("add_", 1, lambda x: x.add_(x, alpha=x[0, 0])),
    ("addcmul", 1, lambda x: torch.addcmul(x, x, x, value=x[0, 0])),
    ("full", 1, lambda x: torch.full((2,), x[0, 0], device="cuda")),
    ("full", 1, lambda x: torch.full((2,), x[0, 0])),
    ("arange", 2, lambda _: torch.arange(number(0), number(3), device="cuda")),
    ("zeros", 1, lambda _: torch.zeros(2, number(3))),
    ("view", 1, lambda x: x.view((number(2), -1))),
    ("split", 1, lambda x: x.split(number(2))),
    ("narrow", 1, lambda x: x.narrow(0, 0, number(2))),
    ("_foreach_add_", 1, lambda x: torch._foreach_add_([x], [x.clone()], alpha=x[0, 0])),
    ("masked_fill", 1, lambda x: x.masked_fill(x > 0.5, x[0, 0])),
    ("masked_fill_", 1, lambda x: x.masked_fill_(x > 0.5, value=x[0, 0])),
    ("index_fill_", 1, lambda x: x.index_fill_(0, torch.arange(2, device="cuda"), x[0, 0])),
    ("fill_", 1, lambda x: torch.zeros(4).fill_(x[0, 0])),
    ("masked_fill_", 1, lambda x: torch.zeros(4).masked_fill_(torch.zeros(4) > 1, x[0, 0])),
    ("index_put_", 2, lambda x: x.index_put_((torch.arange(2, device="cuda"),), x[:2].clone(), accumulate=True)),
    ("mask index", 1, lambda x: x.index_put_((x > 0.5,), x[0, 0])),
]

FROM_DEVICE: list[tuple[int, Callable[[torch.Tensor, torch.Tensor], object]]] = [
    (1, lambda host, x: host.__setitem__(0, x[0])),
    (1, lambda host, x: host[0].__setitem__(1, x[0, 0])),
    (1, lambda host, x: host.__setitem__((0, 1), x[0, 0])),
    (1, lambda host, x: host.__setitem__((slice(2), 1), x[0, 0])),
    (1, lambda host, x: host.__setitem__(host > 0.5, x[0, 0])),
    (1, lambda host, x: host.copy_(x)),
    (1, lambda host, x: host.index_put_((torch.tensor(0), torch.tensor(1)), x[0, 0])),
    (2, lambda host, x: torch._foreach_copy_([host, host.clone()], [x, x])),
    (0, lambda host, x: host.__setitem__(0, host[1])),
    (0, lambda host, x: x.__setitem__(0, x[1])),
]


@pytest.mark.parametrize(("copies", "call"), FROM_DEVICE)
def test_each_value_that_is_written_to_the_host_is_a_copy(
    counts: Counts, copies: int, call: Callable[[torch.Tensor, torch.Tensor], object]
) -> None:
    x = cuda(4, 4)
    counts.clear()
    call(torch.zeros(4, 4), x)
    assert (counts.total(EventKind.DEVICE_TO_HOST), counts.syncs) == (copies, copies)


def test_each_value_that_is_written_to_an_array_is_a_wait(counts: Counts) -> None:
    array, x = np.zeros((4, 4)), cuda(4, 4)
    counts.clear()
    for row in range(4):
        array[row][0] = x[row, 0]
        array[row, 1] = x[row, 1]
    assert counts.syncs == 8
    assert array[2, 1] == x[2, 1].item()


@pytest.mark.parametrize(("name", "waits", "call"), SEVERAL_WAITS)
def test_each_number_that_torch_reads_is_a_wait(
    counts: Counts, name: str, waits: int, call: Callable[[torch.Tensor], object]
) -> None:
    x = cuda(4, 4)
    counts.clear()
    call(x)
    found = [(event.name, count) for (event, _), count in counts.events.items() if event.kind is EventKind.SYNC]
    assert found == [(name, waits)]


IN_BACKWARD: list[tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = [
    (1, lambda x: x[x > 0.5]),
    (2, lambda x: x[x > 0.5] * x[x < 0.5].sum()),
    (0, lambda x: x[torch.arange(2, device="cuda")]),
    (0, lambda x: x.masked_fill(x > 0.5, 0.0)),
    (0, lambda x: functional.gelu(functional.layer_norm(x @ x, (4,)))),
]


@pytest.mark.parametrize(("waits", "call"), IN_BACKWARD)
def test_gradients_of_masks_wait_at_the_line_of_the_backward_pass(
    counts: Counts, waits: int, call: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    loss = call(cuda(4, 4).requires_grad_()).sum()
    counts.clear()
    loss.backward()  # type: ignore[no-untyped-call]
    assert counts.syncs == waits
    assert {event.name for event, _ in counts.events} <= {"backward of mask index"}
    assert all("loss.backward()" in linecache.getline(site.file, site.line) for _, site in counts.events if site)


def test_a_mask_that_is_assigned_to_waits_in_the_backward_pass_too(counts: Counts) -> None:
    x = cuda(4, 4).requires_grad_()
    y = x * 1
    y[x > 0.5] = x[x > 0.5] * 2
    loss = y.sum()
    counts.clear()
    loss.backward()  # type: ignore[no-untyped-call]
    assert counts.syncs == 3  # one for each of three gradients: of the values, of what they replace, of their mask


def test_what_a_hook_reads_in_a_backward_pass_counts_once(counts: Counts) -> None:
    x = cuda(4).requires_grad_()
    x.register_hook(lambda gradient: print(gradient.sum().item(), torch.sub(gradient, 1, alpha=gradient[0])))
    loss = x.sum()
    counts.clear()
    torch.autograd.grad(loss, x)
    assert sorted(event.name for event, _ in counts.events) == ["item", "print", "sub"]
    assert counts.syncs == 3


CALLS_WITHOUT_WAIT: list[Callable[[], object]] = [
    lambda: torch.zeros(2).pin_memory().cuda(non_blocking=True),
    lambda: cuda(2).to("cpu", non_blocking=True),
    lambda: cuda(2).to("cuda:1"),
    lambda: cuda(2).to(torch.float16),
    lambda: cuda(2).sum().detach(),
    lambda: torch.where(cuda(2) > 0.5, 1.0, 0.0),
    lambda: torch.repeat_interleave(cuda(2), 3),
    lambda: cuda(3).repeat_interleave(torch.ones(3, dtype=torch.long), output_size=3),
    lambda: cuda(3)[torch.tensor(1) :],
    lambda: cuda(3).fill_(cuda(1)[0]),
    lambda: cuda(3).masked_fill(cuda(3) > 0.5, 1.0),
    lambda: cuda(3).index_put_((torch.arange(2, device="cuda"),), cuda(2)),
    lambda: functional.one_hot(torch.zeros(3, dtype=torch.long, device="cuda"), 3),
    lambda: cuda(3)[torch.zeros(2, dtype=torch.long, device="cuda")],
    lambda: torch.arange(3, device="cuda"),
    lambda: torch.multinomial(cuda(4), 1),  # its checks are asynchronous
    lambda: torch.normal(cuda(2), 1.0),
    lambda: torch.zeros(1).item(),
    lambda: str(torch.zeros(2)),
    lambda: torch.nonzero(torch.zeros(2)),
    lambda: cuda(2).argmax(),
    lambda: torch.cuda.current_stream().wait_stream(torch.cuda.Stream()),
]


@pytest.mark.parametrize("number", range(len(CALLS_WITHOUT_WAIT)))
def test_it_does_not_wait(counts: Counts, number: int) -> None:
    CALLS_WITHOUT_WAIT[number]()
    assert not counts.sites(), linecache.getline(__file__, CALLS_WITHOUT_WAIT[number].__code__.co_firstlineno)


def test_copies_count_their_bytes_and_memory(counts: Counts) -> None:
    torch.zeros(10).pin_memory().to("cuda", non_blocking=True)
    torch.zeros(5, dtype=torch.float64).to("cuda")
    cuda(3).cpu()
    assert counts.bytes(EventKind.HOST_TO_DEVICE) == 40 + 40
    assert counts.bytes(EventKind.DEVICE_TO_HOST) == 12
    assert {(event.pinned, event.waits) for event, _ in counts.events if event.kind is EventKind.HOST_TO_DEVICE} == {
        (True, False), (False, True)
    }  # fmt: skip


def test_memory_that_is_page_locked_is_so_in_an_array_too(counts: Counts) -> None:
    array = torch.zeros(8, pin_memory=True).numpy()
    torch.from_numpy(array[2:]).to("cuda", non_blocking=True)
    assert counts.syncs == 0
    torch.from_numpy(array.copy()).to("cuda", non_blocking=True)
    assert counts.syncs == 1


def test_a_wait_in_a_library_is_counted_at_the_line_of_the_program(counts: Counts) -> None:
    model = nn.Linear(2, 2).cuda()
    counts.clear()
    model(cuda(1, 2)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    ((event, site),) = counts.events
    assert event.name == "bool"
    assert site is not None
    assert "clip_grad_norm_" in linecache.getline(site.file, site.line)
    assert "clip_grad.py" in site.library


def test_two_runs_count_the_same() -> None:
    def run() -> dict[object, int]:
        with virtual_cuda() as counts:
            model = nn.LSTM(4, 4).cuda()
            for _ in range(3):
                loss = model(cuda(2, 3, 4))[0].sum()
                loss.backward()
                print(loss, end="\r")
        return dict(counts.events)

    assert run() == run()


# ---------------------------------------------------------------- what programs use


def test_numpy_refuses_as_cuda_does(counts: Counts) -> None:
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        cuda(2).numpy()


def test_memory_grows_and_is_freed(counts: Counts) -> None:
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1000, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4096
    del x
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + 4096


def test_saved_files_keep_the_device(counts: Counts) -> None:
    file = io.BytesIO()
    torch.save({"a": cuda(2), "b": torch.zeros(2)}, file)
    for location, expected in ((None, "cuda"), ("cpu", "cpu"), ("cuda", "cuda")):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded["a"].device.type == expected
    file.seek(0)
    assert torch.load(file)["b"].device.type == "cpu"


def test_a_file_of_a_virtual_device_is_readable_without_one() -> None:
    file = io.BytesIO()
    with virtual_cuda():
        torch.save(torch.ones(2, device="cuda"), file)
    file.seek(0)
    assert torch.load(file, map_location="cpu").tolist() == [1.0, 1.0]


def test_gradient_scaling_reads_once_a_step(counts: Counts) -> None:
    model = nn.Linear(4, 4).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    counts.clear()
    with torch.autocast("cuda", dtype=torch.float16):
        output = model(cuda(2, 4))
    assert output.dtype is torch.float16
    scaler.scale(output.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert [event.name for event, _ in counts.events if event.kind is EventKind.SYNC] == ["item"]


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {}])
def test_optimizers(counts: Counts, options: dict[str, bool]) -> None:
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    model(cuda(2, 4)).sum().backward()
    counts.clear()
    optimizer.step()
    optimizer.zero_grad()
    assert counts.syncs == 0
    assert all(value.is_cuda for value in optimizer.state[model.weight].values() if value.dim())


def test_a_loader_with_workers_and_pinned_batches(counts: Counts) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(8, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, pin_memory=True)
    for (batch,) in loader:
        assert batch.is_pinned()
        assert batch.to("cuda", non_blocking=True).is_cuda
    assert counts.syncs == 0


def test_default_devices_and_contexts(counts: Counts) -> None:
    with torch.device("cuda"):
        assert nn.Linear(2, 2).weight.is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(2).is_cuda
        assert torch.normal(torch.zeros(2), torch.ones(2)).is_cuda
        assert not torch.normal(0.0, 1.0, (2,)).is_cuda  # it ignores the default device, as torch's does
    finally:
        torch.set_default_device(None)  # "cpu" would leave a mode
    with torch.device("cpu"):
        assert not torch.zeros(2).is_cuda


def test_generators(counts: Counts) -> None:
    generator = torch.Generator("cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert generator.device.type == "cuda"
    first = torch.randn(3, device="cuda", generator=generator)
    assert torch.equal(first, torch.randn(3, device="cuda", generator=torch.Generator("cuda").manual_seed(3)))


def test_streams_and_events(counts: Counts) -> None:
    stream, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() is stream
        end.record()
    assert begin.elapsed_time(end) >= 0
    assert counts.syncs == 0


def test_checkpointed_activations_and_attention(counts: Counts) -> None:
    from torch.utils.checkpoint import checkpoint

    query = cuda(2, 4, 16, 8).requires_grad_()
    functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    model = nn.Linear(4, 4).cuda()
    checkpoint(model, cuda(2, 4).requires_grad_(), use_reentrant=False).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.is_cuda


def test_results_of_compiled_functions_are_on_the_device(counts: Counts) -> None:
    @torch.compile
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(cuda(2)).is_cuda
    assert torch.compile(nn.Linear(2, 2).cuda())(cuda(1, 2)).is_cuda


def test_a_backward_pass_of_another_thread_changes_nothing(counts: Counts) -> None:
    from concurrent.futures import ThreadPoolExecutor

    seen: list[bool] = []

    class Ask(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            with ThreadPoolExecutor(1) as pool:
                seen.append(pool.submit(lambda: torch.zeros(2).pin_memory().is_cuda).result())
            return gradient

    Ask.apply(cuda(3).requires_grad_()).sum().backward()  # type: ignore[no-untyped-call]
    assert seen == [False]


def test_further_forms_of_copies_and_reads(counts: Counts) -> None:
    x = cuda(3)
    assert x.numpy(force=True).shape == (3,)
    assert -1.0 not in x
    assert [event.name for event, _ in counts.events] == ["numpy", "contains"]


def test_threads_see_the_devices(counts: Counts) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: cuda(2).is_cuda).result()


def test_a_machine_with_a_gpu_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="real GPU"), virtual_cuda():
        pass


def test_a_version_of_torch_without_a_private_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.graph, "_engine_run_backward")
    with pytest.raises(RuntimeError, match=r"it has no torch\.autograd\.graph\._engine_run_backward"), virtual_cuda():
        pass


def test_fills_and_assignments_by_the_names_of_their_arguments(counts: Counts) -> None:
    x, mask, rows = cuda(3), torch.tensor([True, False, True], device="cuda"), torch.tensor([1], device="cuda")
    before = counts.syncs
    results = [
        torch.fill(input=x, value=1.0),
        torch.masked_fill(input=x, mask=mask, value=2.0),
        torch.index_fill(input=x, dim=0, index=rows, value=3.0),
        torch.index_put(input=x, indices=(rows,), values=torch.ones(1, device="cuda")),
    ]
    assert all(result.is_cuda for result in results)
    assert counts.syncs == before
