"""Jobs that compile again and again, as their users report them.

Each function is one job. `cured` is the same program as somebody who knows the cause would write it. `# here` marks the
lines that a reader should be sent to. What each should say is noted in expected.toml, before it was first run.
What only one job needs and takes long to import, it imports itself: each job has a process of its own.
"""

from __future__ import annotations

import collections
import dataclasses
import enum

import torch
import torch.nn.functional as F
from torch import nn


def lr_schedule(cured):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))  # its step costs far more than the graph break
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-3) if cured else 1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    @torch.compile(backend="aot_eager")
    def step():  # torch's schedulers make Dynamo skip Adam.step, so the log has no line of this function
        optimizer.step()

    for _ in range(6):
        model(torch.randn(2, 4)).sum().backward()
        step()
        scheduler.step()
        optimizer.zero_grad()


class Decoder(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.position = 0
        if cured:
            del self.position
            self.register_buffer("position", torch.tensor(0))

    def forward(self, token):
        self.position += 1  # here
        return self.project(token) / (self.position + 1)  # here


def kv_cache_position(cured):
    model = torch.compile(Decoder(cured), backend="aot_eager")
    with torch.no_grad():
        for _ in range(6):
            model(torch.randn(1, 8))


def growing_cache(cured):
    @torch.compile(backend="aot_eager", dynamic=None if cured else False)
    def attend(query, past):  # here
        return torch.softmax(query @ past.transpose(1, 2), -1) @ past  # here

    past = torch.randn(1, 5, 8)
    for _ in range(6):
        query = torch.randn(1, 1, 8)
        attend(query, past)
        past = torch.cat([past, query], 1)


def annealed_dropout(cured):
    def drop(x, rate):
        if cured:
            return x * (torch.rand_like(x) >= rate) / (1 - rate)
        return F.dropout(x, rate)  # here

    compiled = torch.compile(drop, backend="aot_eager")
    for step in range(6):
        rate = 0.5 - 0.05 * step
        compiled(torch.randn(4, 4), torch.tensor(rate) if cured else rate)


class Counted(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        if cured:
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        else:
            self.calls = 0

    def forward(self, x):
        self.calls += 1  # here
        return self.linear(x)


def module_counter(cured):
    model = torch.compile(Counted(cured), backend="aot_eager")
    for _ in range(6):
        model(torch.randn(3, 4))


STEP = 0


def global_step(cured):
    global STEP

    @torch.compile(backend="aot_eager", dynamic=False)
    def warm(x):  # here
        return x * min(STEP / 10, 1.0)  # here

    STEP = torch.tensor(0.0) if cured else 0
    if cured:

        @torch.compile(backend="aot_eager", dynamic=False)
        def warm(x):
            return x * (STEP / 10).clamp(max=1.0)

    for _ in range(6):
        warm(torch.randn(3))
        STEP += 1


def adapter_by_name(cured):
    scales = {f"adapter-{index}": torch.tensor(float(index)) for index in range(6)}

    @torch.compile(backend="aot_eager")
    def apply(x, adapter):  # here
        return x * (adapter if cured else scales[adapter])  # here

    for name in scales:
        apply(torch.randn(3), scales[name] if cured else name)


class Language(enum.Enum):
    EN = 1
    DE = 2
    FR = 3
    IT = 4
    ES = 5
    PT = 6


def enum_argument(cured):
    offsets = torch.arange(6.0)

    @torch.compile(backend="aot_eager")
    def embed(x, language):  # here
        if cured:
            return x + offsets.index_select(0, language)
        return x + offsets[language.value - 1]  # here

    for language in Language:
        embed(torch.randn(3), torch.tensor([language.value - 1]) if cured else language)


@dataclasses.dataclass
class Sampling:
    steps: int


def dataclass_steps(cured):
    def refine(x, config):
        for _ in range(config.steps):  # here
            x = x + torch.sin(x)
        return x

    compiled = torch.compile(refine, backend="aot_eager")
    once = torch.compile(lambda x: x + torch.sin(x), backend="aot_eager")
    for steps in range(2, 8):
        x = torch.randn(3)
        if cured:
            for _ in range(steps):
                x = once(x)
        else:
            compiled(x, Sampling(steps))


def namedtuple_in_loop(cured):
    outside = collections.namedtuple("Batch", ["x", "y"])

    @torch.compile(backend="aot_eager")
    def loss(batch):  # here
        return (batch.x - batch.y).pow(2).mean()  # here

    for _ in range(6):
        kind = outside if cured else collections.namedtuple("Batch", ["x", "y"])
        loss(kind(torch.randn(3), torch.randn(3)))


class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.layer_idx = index
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * (1 + self.layer_idx)  # here


def layer_index(cured):
    blocks = [Block(index) for index in range(7)]
    if cured:
        torch._dynamo.config.allow_unspec_int_on_nn_module = True
    for block in blocks:
        block.compile(backend="aot_eager")
    x = torch.randn(2, 4)
    for block in blocks:
        x = block(x)


def varying_list(cured):
    @torch.compile(backend="aot_eager")
    def total(boxes):  # here
        if cured:
            return boxes.sum()
        return sum(box.sum() for box in boxes)  # here

    for count in range(2, 8):
        boxes = [torch.randn(4) for _ in range(count)]
        total(F.pad(torch.stack(boxes), (0, 0, 0, 8 - count)) if cured else boxes)


def optional_mask(cured):
    @torch.compile(backend="aot_eager")
    def score(batch):  # here
        x = batch["x"]
        return x * batch["mask"] if "mask" in batch else x  # here

    for with_mask in (True, False, True, False):
        batch = {"x": torch.randn(4)}
        if with_mask or cured:
            batch["mask"] = torch.ones(4)
        score(batch)


def grad_mode(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):  # here
        return torch.sin(x)

    for validate in (False, True, False, True):
        with torch.set_grad_enabled(cured or not validate):
            forward(torch.randn(3))


def inference_tensor(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):  # here
        return torch.sin(x)

    with torch.no_grad() if cured else torch.inference_mode():
        first = torch.randn(3)
    forward(first)
    forward(torch.randn(3))


def numpy_float64(cured):
    @torch.compile(backend="aot_eager")
    def normalise(batch):  # here
        return (batch - batch.mean()) / batch.std()

    for index in range(4):
        batch = torch.randn(5, dtype=torch.float64 if index % 2 else torch.float32)
        normalise(batch.float() if cured else batch)


def autocast_toggled(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):  # here
        return x @ x

    for index in range(4):
        with torch.autocast("cpu", torch.bfloat16, enabled=cured or index % 2 == 0):
            forward(torch.randn(4, 4))


def last_batch(cured):
    rows = torch.randn(26, 4)

    @torch.compile(backend="aot_eager")
    def forward(batch):  # here
        return torch.relu(batch).sum()

    for _ in range(2):
        for batch in rows.split(8):
            if not cured or len(batch) == 8:
                forward(batch)


def batch_of_one(cured):
    @torch.compile(backend="aot_eager", dynamic=True)
    def forward(batch):  # here
        return torch.relu(batch).sum(0)

    for size in (4, 1, 6, 1):
        batch = torch.randn(size, 3)
        if cured and size == 1:
            batch = F.pad(batch, (0, 0, 0, 1))
        forward(batch)


def channels_last(cured):
    @torch.compile(backend="aot_eager", dynamic=False)
    def blur(image):  # here
        return F.avg_pool2d(image, 3)

    for index in range(4):
        image = torch.randn(2, 3, 9, 9)
        if cured or index % 2:
            image = image.contiguous(memory_format=torch.channels_last)
        blur(image)


def requires_grad_differs(cured):
    @torch.compile(backend="aot_eager")
    def energy(positions):  # here
        return (positions**2).sum()

    for index in range(4):
        energy(torch.randn(5, requires_grad=cured or index % 2 == 0))


class Marked(torch.Tensor):
    pass


def subclass_sometimes(cured):
    @torch.compile(backend="eager")
    def forward(x):  # here
        return x * 2

    for index in range(4):
        x = torch.randn(3)
        forward(x.as_subclass(Marked) if index % 2 and not cured else x)


REGISTRY: dict[str, int] = {}


def lazy_registry(cured):
    if cured:
        REGISTRY["scale"] = 3

    @torch.compile(backend="aot_eager")
    def forward(x):
        if "scale" not in REGISTRY:  # here
            REGISTRY["scale"] = 3
        return x * REGISTRY["scale"]

    for _ in range(3):
        forward(torch.randn(3))


def compiled_in_a_loop(cured):
    def make(power):
        return lambda x: x.pow(power).sum()  # here

    with_tensor = torch.compile(lambda x, power: x.pow(power).sum(), backend="aot_eager")
    for power in range(2, 14):
        if cured:
            with_tensor(torch.rand(4), torch.tensor(power))
        else:
            torch.compile(make(power), backend="aot_eager", dynamic=False)(torch.rand(4))


def sizes_without_dynamic(cured):
    @torch.compile(backend="aot_eager", dynamic=None if cured else False)
    def forward(tokens):  # here
        return F.one_hot(tokens, 16).float().mean(0)

    for length in range(3, 15):
        forward(torch.randint(16, (length,)))


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4)

    def forward(self, x):  # here
        return F.dropout(self.project(x), 0.1, self.training)


def training_flag(cured):
    model = Dropped()
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        model.train()
        compiled(torch.randn(2, 4))
        model.train(cured)
        compiled(torch.randn(2, 4))


def tied_inputs(cured):
    @torch.compile(backend="aot_eager")
    def distance(anchor, other):  # here
        return (anchor - other).square().sum()

    first, second = torch.randn(4), torch.randn(4)
    distance(first, second)
    distance(first, first.clone() if cured else first)


def unbatched_input(cured):
    @torch.compile(backend="aot_eager")
    def score(x):  # here
        return torch.softmax(x, -1)

    score(torch.randn(1, 4))
    score(torch.randn(1, 4) if cured else torch.randn(4))


def activation_passed(cured):
    @torch.compile(backend="aot_eager")
    def block(x, activation):  # here
        return activation(x) + 1

    for activation in (F.relu, F.relu if cured else F.gelu):
        block(torch.randn(4), activation)


def hook_added_late(cured):
    model = nn.Linear(4, 4)
    compiled = torch.compile(lambda x: model(x) + 1, backend="aot_eager")  # here
    torch._dynamo.config.skip_nnmodule_hook_guards = False

    def hook(module, inputs, output):
        return output * 2

    if cured:
        model.register_forward_hook(hook)
    compiled(torch.randn(2, 4))
    if not cured:
        model.register_forward_hook(hook)
    compiled(torch.randn(2, 4))
