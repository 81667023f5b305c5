"""What Inductor's program needs, as its text says, is what the allocator says, to the byte."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import aotviz
from aotviz.recording.inductor_memory import LONGEST, InductorMemory
from aotviz.torch_private import versions
from tests import corpus
from tests.sweeps import inductor_memory

GIVEN = ("parameter", "buffer", "input", "constant", "tangent")  # what is there before a step


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        parts = self.into(self.norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(16, 16)

    def forward(self, x):
        state, states = x[0], []
        for step in x:
            state = self.cell(step, state)
            states.append(state)
        return torch.stack(states).cumsum(0)


class Statistics(nn.Module):
    """A buffer is written, and a result is a view of an input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(64))
        self.weight = nn.Parameter(torch.rand(64))

    def forward(self, x):
        self.seen.mul_(0.9).add_(x.mean(0), alpha=0.1)
        values, places = (x * self.weight).topk(8)
        return values + places.sort().values, x[1:]


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)), (512, 64)),
    "attention": (lambda: nn.Sequential(Attention(), Attention()), (8, 64, 64)),
    "encoder": (lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), (8, 32, 64)),
    "bfloat16": (lambda: nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64)).bfloat16(), (256, 64)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        ),
        (8, 3, 32, 32),
    ),
    "recurrent": (Recurrent, (6, 32, 16)),
    "statistics": (Statistics, (128, 64)),
    "softmax": (lambda: nn.Sequential(nn.Linear(64, 1000), nn.LogSoftmax(-1)), (256, 64)),
}  # fmt: skip


def step_of(name: str, training: bool, **options):
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape).to(torch.bfloat16 if name == "bfloat16" else torch.float32)
    compiled = aotviz.compile(model, backend="inductor", **options)

    def results():
        found = compiled(x)
        return found if isinstance(found, tuple) else (found,)

    def step():
        if not training:
            with torch.no_grad():
                results()
            return
        first = results()[0]
        first.backward(gradient)

    gradient = torch.rand_like(model(x)[0] if isinstance(model(x), tuple) else model(x))
    for _ in range(2):
        model.zero_grad()
        step()
    model.zero_grad()
    return compiled.recording[0], aotviz.measured_memory(step)


def planned(memory) -> int:
    return max(row.alive - sum(row.by_kind.get(kind, 0) for kind in GIVEN) for row in memory.rows)


@pytest.mark.every(5)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_what_the_text_says_is_what_the_allocator_says(name, training):
    compilation, measured = step_of(name, training)
    memory = compilation.inductor_memory()
    assert memory.unread == ()
    beside = measured.beside(memory)
    assert beside.planned == planned(memory) <= measured.peak.nbytes
    assert abs(beside.unexplained) <= 0.02 * measured.peak.nbytes
    rows = measured.kernels(memory)
    assert rows[["at", "kernel", "line"]].values.tolist() == [[row.at, row.kernel, row.line] for row in memory.rows]
    assert rows.nodes.tolist() == [row.nodes for row in memory.rows]
    assert rows.unexplained.abs().max() == 0
    assert (rows.measured + rows.own).max() == measured.peak.nbytes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "t5", "vit", "resnet", "gpt2"])
def test_what_the_text_of_a_real_model_says_is_what_the_allocator_says(name):
    one = inductor_memory.found(name)
    assert one.graphs == (2 if name == "gpt2" else 1)  # one for the loss
    assert abs(one.unexplained) <= 16  # the sum of the results, and its gradient
    assert one.unexplained_of_a_kernel <= 16


def test_what_the_plan_does_not_know_is_unexplained():
    compilation, _ = step_of("mlp", False)
    memory = compilation.inductor_memory()
    torch._dynamo.reset()
    model = aotviz.compile(MODELS["mlp"][0](), backend="inductor")
    x = torch.randn(512, 64)

    def call():
        kept = torch.empty(1000)
        with torch.no_grad():
            return kept, model(x)

    call()
    (one,) = model.recording
    rows = aotviz.measured_memory(call).kernels(one.inductor_memory())
    assert set(rows.unexplained) == {4000}
    with pytest.raises(LookupError, match="no kernel of Inductor's ran, of Sequential"):
        aotviz.measured_memory(lambda: x.exp()).kernels(memory)
    with pytest.raises(LookupError, match="no kernel of Inductor's ran, of no program"):
        aotviz.measured_memory(call).kernels()


def test_programs_on_both_sides_of_a_graph_break_are_added_up():
    torch._dynamo.reset()
    first, second = nn.Linear(64, 256), nn.Linear(256, 64)

    def loss(x):
        hidden = first(x).exp()
        torch._dynamo.graph_break()
        return second(hidden).sin().sum()

    compiled = aotviz.compile(loss, backend="inductor")
    x = torch.randn(128, 64)
    for _ in range(2):
        compiled(x).backward()
        first.zero_grad()
        second.zero_grad()
    measured = aotviz.measured_memory(lambda: compiled(x).backward())
    plans = [one.inductor_memory() for one in compiled.recording if one.kind == "training"]
    assert len(plans) == 2
    rows = measured.kernels(*plans)
    assert list(dict.fromkeys(zip(rows.program, rows.phase, strict=True))) == [
        (plans[0].name, "forward"), (plans[1].name, "forward"),
        (plans[1].name, "backward"), (plans[0].name, "backward"),
    ]  # fmt: skip
    assert rows.unexplained.max() <= 0.02 * measured.peak.nbytes
    assert rows.others.max() >= 128 * 256 * 4  # what the first saved, while the second runs
    at_peak = rows.loc[(rows.measured + rows.own).idxmax()]
    assert at_peak.unexplained == measured.peak.nbytes - at_peak.planned - at_peak.others - at_peak.own
    hidden, gradient = 128 * 256 * 4, 4  # `hidden` in bytes, and the gradient of the result
    empties = versions.has("a backward may empty its list of gradients")
    held, let_go = (gradient, 2 * hidden) if empties else (2 * gradient, hidden)  # else its gradient is kept
    assert set(rows.unexplained) == {0, held, held - let_go}


@pytest.mark.parametrize("name", ["mlp", "convolutions"])
def test_symbolic_sizes_are_those_of_the_call(name):
    compilation, measured = step_of(name, True, dynamic=True)
    beside = measured.beside(compilation.inductor_memory())
    assert abs(beside.unexplained) <= 0.02 * measured.peak.nbytes


def test_symbolic_sizes_are_those_that_are_asked_for():
    compilation, measured = step_of("mlp", True, dynamic=True)
    memory = compilation.inductor_memory()
    assert planned(memory) == measured.peak.nbytes
    (symbol,) = compilation.data.sizes
    assert planned(compilation.inductor_memory({symbol: 1024})) > 1.9 * planned(memory)


def test_each_kernel_has_the_nodes_that_it_computes_and_each_buffer_its_line():
    compilation, _ = step_of("mlp", True)
    memory = compilation.inductor_memory()
    graph = {node.name for role in ("forward", "backward") for node in compilation.graph(role).rows}
    assert all(row.nodes and graph.issuperset(row.nodes) for row in memory.rows)
    text = {r: stage.code[f"inductor {r}"].splitlines() for stage in compilation.data.stages
            for r in ("forward", "backward") if f"inductor {r}" in stage.code}  # fmt: skip
    for row in memory.moments.itertuples():
        assert f"{row.kernel}" in text[row.phase][row.line - 1]
    for one in memory.holders().itertuples():
        lines = text["backward" if one.made_at >= len([r for r in memory.rows if r.phase == "forward"]) else "forward"]
        assert one.line == 0 or lines[one.line - 1].strip().startswith(f"{one.name} = ")
    assert memory.holders().nbytes.sum() == memory.peak.nbytes
    assert memory.holders(0).nbytes.sum() == memory.rows[0].alive
    with pytest.raises(IndexError, match="there is no moment 99: the moments of Sequential"):
        memory.holders(99)


def test_the_sentences_say_how_far_it_is_from_operator_by_operator():
    compilation, _ = step_of("mlp", True)
    memory = compilation.inductor_memory()
    plan = compilation.memory()
    assert str(memory).startswith("Inductor's program needs at most 1.7")
    second = memory.sentences[1]
    assert f"operator by operator, where the peak is at `{plan.peak.node}` in the {plan.peak.phase}" in second
    said = [float(number) * {"B": 1, "KiB": 1024, "MiB": 1 << 20}[unit] * (1 if more == "more" else -1)
            for number, unit, more in re.findall(r"([\d.]+) (B|KiB|MiB) (more|less)[,.]", second)]  # fmt: skip
    assert sum(said) == pytest.approx(memory.peak.nbytes - plan.peak.nbytes, rel=0.01)


def test_a_saved_recording_and_a_log_say_the_same(tmp_path):
    compiled = aotviz.compile(Attention(), backend="inductor")
    compiled(torch.randn(2, 8, 64)).sum().backward()
    compiled.recording.save(tmp_path / "a.aotviz")
    live, again = (one[0].inductor_memory() for one in (compiled.recording, aotviz.load(tmp_path / "a.aotviz")))
    assert live.moments.equals(again.moments)
    log = aotviz.read_trace(corpus.folder("training"))
    memory = log["0/0"].inductor_memory()
    assert [row.phase for row in memory.rows] == sorted((row.phase for row in memory.rows), reverse=True)
    assert {"gradient", "saved"} <= set(memory.holders().kind)
    assert not memory.unread


ON_A_GPU = '''
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
triton_poi_fused_exp_0 = async_compile.triton("triton_poi_fused_exp_0", """
def triton_poi_fused_exp_0(in_ptr0, out_ptr0, xnumel, XBLOCK):
    pass
""", device_str="cuda")

def partition_0(args):
    arg0_1, = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((64, 64), (64, 1), torch.float32)
        # [Provenance debug handles] triton_poi_fused_exp_0:1
        stream0 = get_raw_stream(0)
        triton_poi_fused_exp_0.run(arg0_1, buf0, 4096, stream=stream0)
        buf9 = empty_strided_cuda((1024, ), (1, ), torch.float32)
        triton_poi_fused_exp_0.run(buf0, buf9, 1024, stream=stream0)
        return (buf0, )

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
        arg0_1, = args
        args.clear()
        assert_size_stride(arg0_1, (64, 64), (64, 1))
        partition0_args = [arg0_1]
        (buf0,) = self.partitions[0](partition0_args)
        del partition0_args
        buf1 = torch.ops.mylib.split.default(buf0)
        del buf0
        buf2 = buf1[0]
        assert_size_stride(buf2, (32, 64), (64, 1), 'torch.ops.mylib.split.default')
        buf3 = buf1[1]
        assert_size_stride(buf3, (16, 64), (64, 1), 'torch.ops.mylib.split.default')
        del buf1
        buf4 = reinterpret_tensor(buf2, (64, 32), (32, 1), 0); del buf2  # reuse
        with torch.cuda._DeviceGuard(0):
            extern_kernels.mm(buf4, reinterpret_tensor(buf3, (32, 32), (32, 1), 0), out=buf4)
            del buf3
        while True:
            break
        return (buf4, )
'''


def on_a_gpu(text):
    compiled = aotviz.compile(lambda x: x.exp(), backend="eager")
    compiled(torch.ones(64, 64))
    one = compiled.recording[0]
    return InductorMemory(one.memory(), {"inference": (text, {})})


def test_a_text_for_a_gpu_is_read_without_one():
    memory = on_a_gpu(ON_A_GPU)
    block = 64 * 64 * 4
    alive = [(row.kernel, row.alive - block) for row in memory.rows]  # beside the input
    assert alive == [
        ("triton_poi_fused_exp_0", block),
        ("triton_poi_fused_exp_0", block + 4096),
        ("torch.ops.mylib.split.default", block + block // 2 + block // 4),
        ("extern_kernels.mm", block // 2 + block // 4),
    ]
    assert memory.unread == ("while True:",)
    assert "1 line was not understood, such as `while True:`." in str(memory)
    assert "1 buffer is used again for later values, instead of 8.00 KiB more." in str(memory)


SYMBOLIC = "def call(args):\n    buf0 = empty_strided_cpu((s7, ), (1, ), torch.float32)\n    return (buf0, )"
UNREADABLE = {
    "C++": ("#include <torch/csrc/inductor/cpp_prefix.h>\nvoid call() {}", "is not Python: cpp_wrapper was on"),
    "no call": ("x = 1", "has no Python that calls its kernels"),
    "deep": ("(" * 100_000, "is not Python"),
    "long": (" " * (LONGEST + 1), "characters"),
    "symbolic": (SYMBOLIC, "give the value of s7"),
    "attributes": ("def call(args):\n    buf0" + ".a" * 700 + "(args)", "nested too deeply"),
    "lists of lists": ("def call(args):\n    a = []\n" + "    a = [a, a]\n" * 60, "lists that are too long"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_text_that_cannot_be_read_says_why(kind):
    text, why = UNREADABLE[kind]
    with pytest.raises(ValueError, match=re.escape(why)):
        on_a_gpu(text)


def test_a_strangers_text_ends():
    """A function that calls itself is not followed, and a buffer is never larger than memory can be."""
    calls = "        (buf0, ) = self.partitions[0](partition0_args)\n"
    memory = on_a_gpu(ON_A_GPU.replace("        return (buf0, )\n", f"        partition0_args = [buf0]\n{calls}"))
    assert calls.strip()[:80] in memory.unread
    huge = "def call(args):\n    buf0 = empty_strided_cpu((10**8, 10**8, 10**8), (1, 1, 10**99), torch.float32)\n"
    huge += "    cpp_fused_0(buf0)\n    return (buf0, )"
    memory = on_a_gpu(huge.replace("10**99", "9" * 99).replace("10**8", "1" + "0" * 18))
    assert memory.peak.nbytes == (1 << 50) + 64 * 64 * 4
    assert len(memory.moments) == 1


def test_what_inductor_does_not_write_is_named_or_followed_once():
    """An allocation without sizes, and items that are taken of each other."""
    lines = [
        "arg0_1, = args",
        "buf0 = empty_strided_cpu()",
        "a = torch.ops.my.op.default(arg0_1)",
        "b = a[0]",
        "a = b[0]",
    ]
    memory = on_a_gpu("def call(args):\n" + "".join(f"    {line}\n" for line in lines))
    assert memory.unread == ("buf0 = empty_strided_cpu()",)
    assert [row.kernel for row in memory.rows] == ["torch.ops.my.op.default"]


def test_a_program_of_another_backend_has_no_such_plan():
    compiled = aotviz.compile(lambda x: x.exp(), backend="eager")
    compiled(torch.ones(3))
    with pytest.raises(LookupError, match="has no text of Inductor's: its backend was another"):
        compiled.recording[0].inductor_memory()


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": torch.optim.AdamW,
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, foreach=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_step_of_an_optimizer_allocates_nothing(name):
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    optimizer = OPTIMIZERS[name](net.parameters())
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    update = aotviz.compile(lambda: optimizer.step(), backend="inductor")
    for _ in range(2):  # in the first one, the optimizer has no state
        update()
    program = update.recording[-1]
    measured = aotviz.measured_memory(update)
    assert measured.beside(program.inductor_memory()) == (0, 0, "", 0, 0)
    assert not measured.kernels(program.inductor_memory())[["planned", "measured", "own", "unexplained"]].any(axis=None)
    assert planned(program.memory()) > 0  # operator by operator, each new value is made before it is copied


def test_the_scratch_of_an_operator_is_measured():
    x, w = torch.rand(4, 8, 32, 32), torch.rand(16, 8, 3, 3)
    measured = aotviz.measured_memory(lambda: F.conv2d(x, w).relu())
    assert measured.scratch.operator.tolist() == ["aten::conv2d"]
    assert measured.left == measured.result.nbytes
    none = aotviz.measured_memory(lambda: x.exp())
    assert none.peak == (x.nbytes, "aten::exp", 0)
    assert not len(none.scratch)
    assert str(none) == "The call allocated at most 128.0 KiB, in `aten::exp`."
    assert aotviz.measured_memory(lambda: None).peak == (0, "", 0)
    with pytest.raises(ValueError, match="the memory of mps cannot be measured"):
        aotviz.measured_memory(lambda: None, "mps")
