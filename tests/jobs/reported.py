"""Jobs that were added from later reports; see recompiles.py for how a job is written."""

from __future__ import annotations

import dataclasses
import logging
import time
import types
import warnings

import torch
import torch.nn.functional as F
from torch import nn


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:  # here
            x = F.relu(layer(x))  # here
        return x


def layers_frozen(cured):
    model = Stack()
    compiled = torch.compile(model, backend="aot_eager")
    if cured:
        model.layers[:2].requires_grad_(False)
    compiled(torch.randn(2, 4))
    model.layers[:2].requires_grad_(False)
    compiled(torch.randn(2, 4))


def converted_after_a_check(cured):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = torch.compile(model, backend="aot_eager")
    if cured:
        model.to(torch.bfloat16)
    compiled(torch.randn(2, 4, dtype=model[0].weight.dtype))
    model.to(torch.bfloat16)
    compiled(torch.randn(2, 4, dtype=torch.bfloat16))  # here


def number_of_captions(cured):
    @torch.compile(backend="aot_eager")
    def loss(scores, captions):
        return scores.sum() / (captions if cured else len(captions))  # here

    for count in range(2, 8):
        captions = ["a photo of a cat"] * count
        loss(torch.randn(8), count if cured else captions)


def param_group_added(cured):
    body, head = nn.Linear(4, 4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    if cured:
        optimizer.add_param_group({"params": list(body.parameters())})

    @torch.compile(backend="aot_eager")
    def step():
        optimizer.step()

    for epoch in range(2):
        if epoch == 1 and not cured:
            optimizer.add_param_group({"params": list(body.parameters())})
        head(body(torch.randn(2, 4))).sum().backward()
        step()
        optimizer.zero_grad()


def masked_mean(cured):
    @torch.compile(backend="aot_eager")
    def loss(errors, valid):
        if cured:
            return (errors * valid).sum() / valid.sum()
        return errors[valid].mean()  # here

    loss(torch.randn(8), torch.rand(8) > 0.3)


class Rotary(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.max_seq_len_cached = 0
        if cured:
            self.extend(64)

    def extend(self, length):
        self.max_seq_len_cached = length
        angles = torch.outer(torch.arange(length).float(), torch.tensor([1.0, 0.1]))
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, x):
        if x.shape[0] > self.max_seq_len_cached:  # here
            self.extend(x.shape[0])
        return x * self.cos[: x.shape[0]] + x.flip(-1) * self.sin[: x.shape[0]]  # here


def rotary_cache_grows(cured):
    model = torch.compile(Rotary(cured), backend="aot_eager")
    for length in (8, 16, 24, 32, 40):
        model(torch.randn(length, 2))


class ReversedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength  # here
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


def gradient_reversal(cured):
    @torch.compile(backend="aot_eager", dynamic=False)
    def domain(x, strength):  # here
        return ReversedGradient.apply(x, strength).sum()  # here

    for step in range(5):
        strength = step / 10
        domain(torch.randn(3, requires_grad=True), torch.tensor(strength) if cured else strength).backward()


def loss_logged(cured):
    history = []

    @torch.compile(backend="aot_eager")
    def step(x, y):
        loss = F.mse_loss(x, y)
        history.append(loss.detach() if cured else loss.item())  # here
        return loss * 2

    step(torch.randn(3, requires_grad=True), torch.randn(3)).backward()


def autocast_dtype(cured):
    model = nn.Linear(4, 4)

    @torch.compile(backend="aot_eager")
    def forward(x):  # here
        return model(x)  # here

    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=torch.bfloat16 if cured else dtype):
            forward(torch.randn(2, 4))


def timed_inside(cured):
    spent = []

    @torch.compile(backend="aot_eager")
    def forward(x):
        if cured:
            return torch.relu(x) + 1
        start = time.perf_counter()  # here
        y = torch.relu(x)
        spent.append(time.perf_counter() - start)  # here
        return y + 1

    forward(torch.randn(3))


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor


class Classifier(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.linear, self.cured = nn.Linear(4, 2), cured

    def forward(self, x):
        hidden = self.linear(x)
        if self.cured:
            return {"logits": hidden.relu(), "hidden": hidden}
        return Output(hidden.relu(), hidden)  # here


def export_returns_a_dataclass(cured):
    torch.export.export(Classifier(cured), (torch.randn(2, 4),))


def cond_returns_its_input(cured):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def forward(x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.clone() if cured else x, (x,))  # here

    forward(torch.randn(3))


def compiled_inside_ddp(cured):
    from tests import one_rank

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    with one_rank.alone():
        trained = nn.parallel.DistributedDataParallel(torch.compile(model, backend="aot_eager"))
        for _ in range(2):
            trained(torch.randn(2, 4)).sum().backward()


def smooth(x):
    return x * torch.sigmoid(x)


class Gated(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.gate = smooth if shared else types.FunctionType(smooth.__code__.replace(co_name="gate"), globals())

    def forward(self, x):
        return x + self.gate(self.linear(x))  # here


def own_gate_for_each_block(cured):
    blocks = [Gated(cured) for _ in range(5)]
    for block in blocks:
        block.compile(backend="aot_eager")
    x = torch.randn(2, 4)
    for block in blocks:
        x = block(x)


def prefix_by_a_loop(cured):
    @torch.compile(backend="aot_eager")
    def accumulate(x, start, end):
        if cured:
            return x[start:end].sum(0)
        result = x[start]
        for i in range(start + 1, end):  # here
            result = result + x[i]
        return result

    for start in range(2, 7):
        accumulate(torch.randn(12, 3), start, start + 5 + start % 2)


def device_context(cured):
    @torch.compile(backend="aot_eager")
    def noisy(x):  # here
        return x + torch.ones(x.shape)  # here

    noisy(torch.randn(3))
    if cured:
        noisy(torch.randn(3))
        return
    with torch.device("cpu"):
        noisy(torch.randn(3))


def seeded_inside(cured):
    @torch.compile(backend="aot_eager")
    def mask(x, noise):
        if not cured:
            noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))  # here
        return x * (noise > 0.5)

    mask(torch.randn(8), torch.rand(8, generator=torch.Generator().manual_seed(0)))


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 4))

    def forward(self, x):
        return x + self.table[: x.shape[1]]  # here


def table_too_short_for_export(cured):
    length = torch.export.Dim("length", max=16 if cured else 1024)
    torch.export.export(Positions(), (torch.randn(2, 8, 4),), dynamic_shapes=({1: length},))


def some_gradients_missing(cured):
    experts = [nn.Linear(4, 1) for _ in range(2)]
    optimizer = torch.optim.SGD([p for expert in experts for p in expert.parameters()], lr=torch.tensor(0.1))

    @torch.compile(backend="aot_eager")
    def step():
        optimizer.step()

    for number in range(4):
        for expert in experts:
            for parameter in expert.parameters():
                parameter.grad = torch.zeros_like(parameter) if cured else None
        experts[number % 2](torch.randn(2, 4)).sum().backward()
        step()


def keys_in_another_order(cured):
    @torch.compile(backend="aot_eager")
    def total(batch):
        return sum(value.sum() for value in batch.values())  # here

    for names in (("image", "text"), ("text", "image")):
        total({name: torch.randn(3) for name in (sorted(names) if cured else names)})


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x):  # here
        for block in self.blocks:
            x = block(x).relu()
        return x


def blocks_appended(cured):
    model = Growing()
    compiled = torch.compile(model, backend="aot_eager")
    if cured:
        model.blocks.extend(nn.Linear(4, 4) for _ in range(3))
    for _ in range(3):
        compiled(torch.randn(2, 4))
        if not cured:
            model.blocks.append(nn.Linear(4, 4))


def int_of_a_tensor(cured):
    @torch.compile(backend="aot_eager")
    def area(box, scale):
        if cured:
            return (box[2] - box[0]) * scale
        return int(box[2] - box[0]) * scale  # here

    for seed in range(3):
        area(torch.arange(4) + torch.tensor([0, 0, seed, 0]), torch.ones(3))


def steps_unrolled(cured):
    @torch.compile(backend="aot_eager")
    def integrate(x, rate):
        for _ in range(400):
            x = x - rate * torch.sin(x)  # here
        return x

    integrate(torch.randn(3), torch.ones(3))


def labels_of_a_language_model(cured):
    import transformers

    logger = logging.getLogger("transformers.modeling_utils")
    if cured:
        torch._dynamo.config.ignore_logging_functions.add(logger.warning_once)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 64, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, **sizes))
    step = torch.compile(lambda tokens: model(tokens, labels=tokens).loss, backend="eager")  # here
    step(torch.randint(0, 64, (2, 8))).backward()


def mask_in_some_calls(cured):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = torch.compile(transformers.BertModel(transformers.BertConfig(vocab_size=64, **sizes)), backend="eager")
    tokens, mask = torch.randint(0, 64, (2, 8)), torch.ones(2, 8, dtype=torch.long)
    model(tokens, **({"attention_mask": mask} if cured else {}))
    model(tokens, attention_mask=mask)  # here


def tokens_generated(cured):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(vocab_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=None, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()
    model.forward = torch.compile(model.forward, backend="eager")
    kind = {"cache_implementation": "static"} if cured else {}
    model.generate(torch.randint(3, 64, (1, 5)), max_new_tokens=5, do_sample=False, **kind)  # here


MASKS = {}


def table_of_masks(cured):
    def mask(length):
        if length not in MASKS:  # here
            MASKS[length] = torch.full((length, length), -torch.inf).triu(1)  # here
        return MASKS[length]

    @torch.compile(backend="aot_eager")
    def attention(q, given):
        scores = q @ q.transpose(-1, -2) + (mask(q.shape[1]) if given is None else given)
        return scores.softmax(-1) @ q

    for length in (4, 5, 6, 7, 8):
        attention(torch.randn(2, length, 8), mask(length) if cured else None)


def image_sizes(cured):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1))
    compiled = torch.compile(model, backend="aot_eager")
    for height, width in ((8, 8), (10, 8), (10, 12), (12, 14)):
        image = torch.randn(1, 3, height, width)
        if cured:
            torch._dynamo.mark_dynamic(image, [2, 3])
        compiled(image)  # here


def warning_in_forward(cured):
    if cured:
        torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)

    @torch.compile(backend="aot_eager")
    def scale(x):
        y = x * 2
        if x.dtype == torch.float32:
            warnings.warn("the slow path", stacklevel=2)  # here
        return y + 1

    scale(torch.randn(3))
