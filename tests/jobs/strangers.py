"""Jobs of a person who knew neither the code of `explain` nor the other jobs: those whose kinds were told wrongly.

See recompiles.py for how a job is written.
"""

from __future__ import annotations

import threading

import torch
from torch import nn


def layers_unfrozen_in_turn(cured):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    model.requires_grad_(cured)
    step = torch.compile(model, backend="aot_eager")
    for layer in reversed(model):
        layer.requires_grad_(True)
        step(torch.ones(2, 4)).sum().backward()  # here


NORMS = {}


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Measured(Clamp):
    @staticmethod
    def backward(ctx, grad):
        NORMS["clamp"] = grad.detach().norm()  # here
        return grad


def statistics_in_a_backward(cured):
    clamp = Clamp if cured else Measured
    scaled = torch.compile(lambda x: clamp.apply(x * 2) * 3, backend="aot_eager")
    scaled(torch.ones(3, requires_grad=True)).sum().backward()


class Settings:
    kind = None


class Classifier(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.settings = nn.Linear(4, 2), Settings()
        self.settings.kind = kind

    def forward(self, x, labels):
        if self.settings.kind is None:  # here
            self.settings.kind = "one label"
        return nn.functional.cross_entropy(self.linear(x), labels)


def kind_set_by_the_first_call(cured):
    model = torch.compile(Classifier("one label" if cured else None), backend="aot_eager")
    for _ in range(3):
        model(torch.ones(2, 4), torch.tensor([0, 1])).backward()


@torch.compile(backend="aot_eager")
def rescaled(x):
    return x / (x.abs().max().item() + 1.0)  # here


def setting_of_another_thread(cured):
    if not cured:
        torch._dynamo.config.capture_scalar_outputs = True

    def worker():
        if cured:
            torch._dynamo.config.capture_scalar_outputs = True
        rescaled(torch.ones(4))

    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()


def cell(h, x):
    return torch.tanh(h + x)


def time_steps_unrolled(cured):
    step = torch.compile(cell, backend="aot_eager") if cured else cell

    def recurrent(x):
        h = torch.zeros_like(x[0])
        for t in range(x.shape[0]):
            h = step(h, x[t])  # here
        return h

    recurrent(torch.ones(300, 4)) if cured else torch.compile(recurrent, backend="aot_eager")(torch.ones(300, 4))


def update(average: torch.Tensor, value: torch.Tensor) -> None:
    average.mul_(0.9).add_(value, alpha=0.1)


def operator_without_its_write(cured):
    average = torch.library.custom_op("strangers::average", update, mutates_args={"average"} if cured else ())
    average.register_fake(lambda average, value: None)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x, kept):
        y = torch.sigmoid(x)
        average(kept, y.mean(0))  # here
        return y.sum()

    step(torch.ones(4, 2), torch.zeros(2))


def experts_in_a_loop(cured):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.MixtralConfig(vocab_size=16, num_key_value_heads=1, num_local_experts=2, **sizes)
    kind = "batched_mm" if cured else "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation=kind).eval()
    step = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        step(input_ids=torch.arange(6)[None], use_cache=False)  # here


def random_numbers_compared(cured):
    def noisy(x):
        return x + torch.rand_like(x)

    results = []
    for function in (noisy, torch.compile(noisy, options={"fallback_random": cured})):
        torch.manual_seed(7)
        results.append(function(torch.ones(64)))
    assert torch.equal(*results)


def roundings_compared(cured):
    def mixed(x):
        return ((x * 1.7 + x) * 0.3 - x).tanh()

    x = torch.linspace(-3, 3, 512, dtype=torch.bfloat16)
    assert torch.equal(torch.compile(mixed, options={"emulate_precision_casts": cured})(x), mixed(x))


def penalty_of_a_critic(cured):
    critic = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    score = torch.compile(critic, backend="aot_eager")
    for _ in range(2):
        (score(torch.randn(3, 4)) - score(torch.randn(3, 4))).sum().backward()
        mixed = torch.randn(3, 4, requires_grad=True)
        result = (critic if cured else score)(mixed)  # here
        (gradient,) = torch.autograd.grad(result.sum(), mixed, create_graph=True)
        gradient.square().mean().backward()


class Experts(nn.Module):
    def __init__(self, checks):
        super().__init__()
        self.router, self.checks = nn.Linear(4, 3), checks
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        counts = torch.bincount(self.router(x).argmax(-1), minlength=3)
        if self.checks:
            torch._check(counts.shape[0] == 3)
        shares = counts.tolist()  # here
        return sum(expert(x) * share for expert, share in zip(self.experts, shares, strict=True))


def export_of_counted_experts(cured):
    torch.export.export(Experts(cured), (torch.randn(8, 4),))


def gradients_of_samples_with_batch_norm(cured):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
    if cured:
        torch.func.replace_all_batch_norm_modules_(model)
    values = dict(model.named_parameters()), dict(model.named_buffers())

    def loss(weights, buffers, x):
        return torch.func.functional_call(model, (weights, buffers), (x[None],)).square().sum()  # here

    of_samples = torch.vmap(torch.func.grad(loss), (None, None, 0))
    torch.compile(of_samples, backend="aot_eager", fullgraph=True)(*values, torch.randn(5, 3, 8, 8))


class Quantized(torch.Tensor):
    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype, device=whole.device)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    def __tensor_flatten__(self):
        return ["whole", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["whole"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].whole, args[0].scale)
        plain = torch.utils._pytree.tree_map_only(cls, lambda one: one.whole * one.scale, args)
        return func(*plain, **(kwargs or {}))


class PrintedQuantized(Quantized):
    def __repr__(self):
        return f"PrintedQuantized({tuple(self.shape)})"


def subclass_without_a_repr(cured):
    kind = PrintedQuantized if cured else Quantized
    linear = nn.Linear(4, 4)
    whole = torch.randint(-9, 9, (4, 4), dtype=torch.int8)
    linear.weight = nn.Parameter(kind(whole, torch.ones(4, 1)), requires_grad=False)
    with torch.no_grad():
        torch.compile(linear, backend="aot_eager", fullgraph=True)(torch.ones(2, 4))  # here


def generator_made_inside(cured):
    @torch.compile(backend="aot_eager")
    def step(x, drawn):
        noise = drawn if cured else torch.randn(x.shape, generator=torch.Generator().manual_seed(7))  # here
        return x.sin() + noise

    for _ in range(2):
        step(torch.ones(3), torch.randn(3, generator=torch.Generator().manual_seed(7)))


class MaskedTokens(nn.Module):
    def __init__(self, without_a_branch):
        super().__init__()
        self.embedding, self.without_a_branch = nn.Embedding(9, 4), without_a_branch

    def forward(self, ids, mask):
        h = self.embedding(ids)
        if self.without_a_branch:
            return torch.where(mask[..., None], 0.0, h).mean(1)
        if mask.any():  # here
            h = h.masked_fill(mask[..., None], 0.0)
        return h.mean(1)


def classifier_with_a_mask(cured):
    torch.export.export(MaskedTokens(cured), (torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 5, dtype=torch.bool)))
