"""The planned memory of a training step in pieces: it is what the step needs, to the byte, at every node."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.frontends import backwards
from aotviz.ir import handed_over
from aotviz.recorder.live_storages import LiveStorages
from aotviz.recording import measured_bytes
from aotviz.recording.step_memory import StepMemory
from aotviz.torch_private import versions
from aotviz.torch_private.modules import boxed
from aotviz.whole_backward.early_writes import run_early


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    aotviz.compiled_autograd.reset()
    yield
    torch._dynamo.reset()


class Watching:
    """A compiler whose graphs run operator by operator, under a mode that sees what is alive, if there is one."""

    __name__ = "watching"

    def __init__(self) -> None:
        self.mode: LiveStorages | None = None

    def __call__(self, module: Any, _inputs: Any) -> Callable[[list[Any]], Any]:
        return self.watched(boxed(module))

    def watched(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        def watched(args: list[Any]) -> Any:
            if self.mode is None:
                return run(args)
            self.mode.give(args)
            with self.mode:
                return run(args)

        watched._boxed_call = True  # type: ignore[attr-defined]
        return watched


class WithLoss(nn.Module):
    """A loss inside of the compiled function: no operator runs between the pieces."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "a perceptron": lambda: (WithLoss(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.ReLU()), torch.ones(16, 8)),
    "dropout": lambda: (WithLoss(nn.Linear(8, 32), nn.Dropout(0.3), nn.Linear(32, 4)), torch.ones(16, 8)),
    "attention": lambda: (WithLoss(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)), torch.ones(2, 5, 16)),
    "convolutions": lambda: (
        WithLoss(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)),
        torch.ones(2, 3, 8, 8),
    ),
    "tied weights": lambda: (tied(), torch.ones(16, 8)),
}


def tied() -> nn.Module:
    model = WithLoss(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model.layers[2].weight = model.layers[0].weight  # type: ignore[union-attr]
    return model


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, foreach=False)


def measured(
    model: nn.Module, x: torch.Tensor, make: Callable[[Any], torch.optim.Optimizer], adds: bool = False
) -> tuple[aotviz.Recording, StepMemory, list[str]]:
    """The recording of a step, its plan, and where the plan differs from what a step needs: a line for each node."""
    compiler = Watching()
    forward = aotviz.compile(model, backend=compiler)
    return stepped(compiler, lambda: forward(x), model, make, [x], adds)


def stepped(
    compiler: Watching,
    forward: Callable[[], torch.Tensor],
    model: nn.Module,
    make: Callable[[Any], torch.optim.Optimizer],
    given: Sequence[torch.Tensor],
    adds: bool = False,
) -> tuple[aotviz.Recording, StepMemory, list[str]]:
    optimizer = make(model.parameters())
    update = aotviz.compile(lambda: optimizer.step(), backend=compiler)
    captured = aotviz.compiled_autograd(backend=compiler)

    def step() -> torch.Tensor:
        if not adds:
            optimizer.zero_grad()
        loss = forward()
        with captured:
            loss.backward()
        update()
        return loss

    with aotviz.record() as recording:
        for _ in range(3):
            step()
    known = [*given, *model.parameters(), *model.buffers()]
    known += [one.grad for one in model.parameters() if adds and one.grad is not None]
    known += [one for state in optimizer.state.values() for one in state.values() if isinstance(one, torch.Tensor)]
    compiler.mode = LiveStorages(known)
    held = step()
    compiler.mode.close()
    plan = recording.step_memory()
    rows, found = measured_bytes.compared(plan, compiler.mode.ran)
    del held
    assert len(rows) > 20 or found
    return recording, plan, found


@pytest.mark.every(5)
@pytest.mark.parametrize("make", [sgd, adamw])
@pytest.mark.parametrize("name", MODELS)
def test_the_plan_of_a_step_is_what_is_measured_after_each_node(name: str, make: Any) -> None:
    torch.manual_seed(0)
    _, plan, found = measured(*MODELS[name](), make)
    assert not found
    assert list(dict.fromkeys(plan.moments.phase)) == ["forward", "backward", "step"]


def test_gradients_that_are_added_up_are_alive_before_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Watching()
    compiler.__name__ = "eager"  # whose parts add to gradients where they are computed
    early = lambda module, inputs: compiler.watched(run_early(module, inputs))  # noqa: E731
    monkeypatch.setattr(backwards, "run_early", early)
    model, x = MODELS["a perceptron"]()
    forward = aotviz.compile(model, backend=compiler)
    recording, plan, _ = stepped(compiler, lambda: forward(x), model, sgd, [x], adds=True)
    given = plan.moments[["parameter", "buffer", "input", "constant", "tangent", "gradient"]].sum(axis=1)
    assert compiler.mode is not None
    needed = max(sum(made.nbytes for made in ran.alive) for ran in compiler.mode.ran)
    assert (plan.moments.alive - given).max() == needed
    expected = sum(one.nbytes for one in model.parameters())
    first, *_, last = plan.moments.gradient
    assert first == last == expected
    assert plan.peak.nbytes == recording.step_memory(*plan.pieces).peak.nbytes


def test_two_forwards_and_a_hook_between_two_parts() -> None:
    torch.manual_seed(0)
    model, compiler, x = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)), Watching(), torch.ones(16, 8)
    first = aotviz.compile(lambda x: model[0](x).tanh(), backend=compiler)
    second = aotviz.compile(lambda x: model[1](x).square().mean(), backend=compiler)
    results: list[torch.Tensor] = []

    def forward() -> torch.Tensor:
        results[:] = [first(x)]
        results[0].register_hook(lambda gradient: looked.append(gradient.shape))
        return second(results[0])

    looked: list[Any] = []
    recording, plan, found = stepped(compiler, forward, model, sgd, [x])
    assert looked
    assert [one.name for one in recording if ", part " in one.name] == ["backward, part 0", "backward, part 1"]
    assert [recording[one].kind for one in plan.pieces] == ["training", "training", "compiled autograd", "inference"]
    assert not found


class Broken(nn.Module):
    """A function of two graphs, with what the second one gets."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 32), nn.Linear(32, 16), nn.Linear(16, 4)


class OneBreak(Broken):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        torch._dynamo.graph_break()
        return self.third(self.second(hidden).sigmoid()).square().mean()


class TwoBreaks(Broken):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        torch._dynamo.graph_break()
        hidden = self.second(hidden).sigmoid()
        torch._dynamo.graph_break()
        return self.third(hidden).square().mean()


class ReadTwice(Broken):
    """What the first graph makes is read by both of the others, so its gradient is a sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        torch._dynamo.graph_break()
        other = self.second(hidden).sigmoid()
        torch._dynamo.graph_break()
        return self.third(other).square().mean() + (hidden * hidden).mean()


class NotSaved(Broken):
    """No backward reads what the first graph hands on, and a view of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) + 1
        halves = hidden[:, :16]
        torch._dynamo.graph_break()
        added = hidden[:, 16:] + halves
        torch._dynamo.graph_break()
        return (added + 1).sum() + x.square().sum()


class SharedWeight(Broken):
    """Both graphs read a weight, whose gradients are added up."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        torch._dynamo.graph_break()
        return (hidden @ self.first.weight).square().mean()


class Constants(Broken):
    """The graph between the breaks has no gradient: what it makes, and reads, the function holds until it returns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        torch._dynamo.graph_break()
        scale = hidden.detach().abs().exp()
        torch._dynamo.graph_break()
        return self.third(self.second(hidden / scale).sigmoid()).square().mean()


class Inside(Broken):
    """The break is in a module inside: what its graphs hand on, the outer function does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(self.first(x).tanh())
        return self.third(self.second(hidden).sigmoid()).square().mean()


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.exp() + 1
        torch._dynamo.graph_break()
        return y.neg() + 2


BROKEN = [OneBreak, TwoBreaks, ReadTwice, NotSaved, SharedWeight, Constants, Inside]


@pytest.mark.every(3)
@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("whole", [False, True], ids=["each backward", "a captured backward"])
def test_the_plan_of_graphs_between_breaks_is_what_is_measured_after_each_node(kind: Any, whole: bool) -> None:
    if not whole and not versions.has("a backward may empty its list of gradients"):
        pytest.skip("torch keeps the gradients that come into a backward until it is over")
    torch.manual_seed(0)
    model, x, compiler = kind(), torch.linspace(-1, 1, 128).view(16, 8), Watching()
    forward = aotviz.compile(model, backend=compiler)
    if whole:
        recording, plan, found = stepped(compiler, lambda: forward(x), model, sgd, [x])
        assert not found
    else:
        with aotviz.record() as recording:
            for _ in range(2):
                model.zero_grad()
                forward(x).backward()
        model.zero_grad()
        compiler.mode = LiveStorages([x, *model.parameters()])
        held = forward(x)
        held.backward()
        compiler.mode.close()
        plan = recording.step_memory()
        rows, found = measured_bytes.compared(plan, compiler.mode.ran)
        assert not found
        assert len(rows) > 10
    graphs = [one for one in recording if one.kind == "training"]
    assert len(plan.pieces) == len(graphs) + 2 * whole + (kind is Constants)
    assert len(graphs) == 1 + {TwoBreaks: 2, ReadTwice: 2, NotSaved: 2, Inside: 3}.get(kind, 1)
    assert sum(one.nbytes for one in plan.all_holders if one.kind == "parameter") == sum(
        one.nbytes for one in model.parameters() if one.grad is not None
    )


def test_a_file_has_the_same_plan(tmp_path: Path) -> None:
    recording, plan, _ = measured(*MODELS["a perceptron"](), adamw)
    recording.save(tmp_path / "step.aotviz")
    again = aotviz.load(tmp_path / "step.aotviz").step_memory()
    assert again.moments.equals(plan.moments)
    assert again.holders().equals(plan.holders())


def test_without_a_captured_backward_the_backward_of_the_forward_runs() -> None:
    model = nn.Linear(8, 8)
    optimizer = sgd(model.parameters())
    forward = aotviz.compile(lambda x: model(x).square().mean(), backend="eager")
    update = aotviz.compile(lambda: optimizer.step(), backend="eager")
    with aotviz.record() as recording:
        for _ in range(2):
            forward(torch.ones(4, 8)).backward()
            update()
    plan, alone = recording.step_memory(), recording[0].memory()
    until = len(alone.moments)
    assert plan.moments.node.tolist()[:until] == alone.moments.node.tolist()
    state = sum(one.nbytes for one in plan.all_holders if one.kind == "buffer")
    assert state == sum(one.nbytes for one in model.parameters())  # the momentum
    assert (plan.moments.alive[:until] - alone.moments.alive == state).all()
    assert set(plan.moments.phase[until:]) == {"step"}


def test_what_is_no_step_is_refused_by_name() -> None:
    recording, _, _ = measured(*MODELS["a perceptron"](), sgd)
    with pytest.raises(LookupError, match=r"there is no compilation '9'; there are 0, 1, "):
        recording.step_memory("9")
    with pytest.raises(LookupError, match=r"backward has no sizes of its own: see `recording.step_memory\(\)`"):
        recording[1].memory()
    with pytest.raises(LookupError, match="whose backward was captured, is not among the compilations"):
        recording.step_memory("1")
    with aotviz.record() as empty:
        aotviz.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    with pytest.raises(LookupError, match="which compilations make a step\\? no backward is recorded"):
        empty.step_memory()
    with aotviz.record() as several:
        for by in (2, 3):
            aotviz.compile(lambda x, by=by: x * by, backend="eager")(torch.ones(2, requires_grad=True))
    with pytest.raises(LookupError, match=r"2 functions were compiled with a backward \(0, 1\): name them, in order"):
        several.step_memory()


def test_a_gradient_that_only_a_view_holds_is_not_copied() -> None:
    """As by autograd's engine: `.grad` is the memory that the graph allocated."""
    model, seen = nn.Linear(8, 8), list[int]()

    def compiler(module: Any, _inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            found = module(*args)
            seen.extend(one.untyped_storage().data_ptr() for one in found if isinstance(one, torch.Tensor))
            return found

        return run

    with aotviz.compiled_autograd(backend=compiler):
        model(torch.ones(4, 8)).square().mean().backward()
    for one in model.parameters():
        assert one.grad is not None
        assert one.grad.untyped_storage().data_ptr() in seen
        assert one.grad._base is None


def test_a_graph_without_a_backward_after_the_last_break_is_part_of_the_step() -> None:
    weight = nn.Parameter(torch.randn(64, 64))

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x @ weight).tanh()
        loss = y.sum()
        torch._dynamo.graph_break()
        return loss, y.detach().repeat(16, 1).exp().mean()

    torch._dynamo.reset()
    with aotviz.record() as recording:
        loss, _ = torch.compile(f, backend="aotviz_eager")(torch.randn(256, 64))
        loss.backward()
    plan = recording.step_memory()
    assert plan.pieces == ("0", "1")
    assert list(dict.fromkeys(plan.moments.phase)) == ["forward", "backward"]
    assert plan.peak.nbytes > 2 * 16 * 256 * 64 * 4  # the repeated values and their exponentials


def test_graphs_of_inference_are_one_plan() -> None:
    weight = torch.randn(64, 64)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x @ weight).tanh()
        torch._dynamo.graph_break()
        return (y @ weight).sum()

    torch._dynamo.reset()
    with aotviz.record() as recording, torch.no_grad():
        torch.compile(f, backend="aotviz_eager")(torch.randn(256, 64))
    plan = recording.step_memory("0", "1")
    assert set(plan.moments.phase) == {"forward"}
    of_y = [one for one in plan.all_holders if one.nbytes == 256 * 64 * 4 and one.name in ("tanh", "y")]
    assert len(of_y) == 1


def test_what_is_handed_over_is_known_by_thread() -> None:
    failed = list[BaseException]()

    def work(number: int) -> None:
        try:
            for turn in range(200):
                tensors = [torch.ones(1) for _ in range(20)]
                handed_over.note(f"f [{number}/{turn}]", [f"x{i}" for i in range(20)], tensors, tuple(tensors[:1]))
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed
