"""Recompiles because of tensors and of torch's global state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from aotviz.explain.cures import guard_cures as cures
from tests.cures.programs import compiled, errors, program, settled, under
from tests.cures.tagged import Tagged


@program("a transposed input", cures.STRIDE, "`x.contiguous()`", ("pytorch/pytorch#160271", "pytorch/pytorch#126241"))
def a_layout(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    x = torch.ones(4, 6)
    return [step(one.contiguous() if cured else one) for one in (x, torch.ones(6, 4).t())]


@program("an input in another dtype", cures.DTYPE, "`x.to(torch.float32)`", ("pytorch/pytorch#128134",))
def a_dtype(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    for one in (torch.ones(3), torch.ones(3, dtype=torch.float64)):
        step(one.to(torch.float32) if cured else one)
    return None


@program("an input with another number of dimensions", cures.RANK, "`unsqueeze`")
def a_rank(cured: bool) -> object:
    step = compiled(lambda x: x.sum(-1))
    for one in (torch.ones(1, 3), torch.ones(3)):
        step(one.unsqueeze(0) if cured and one.dim() == 1 else one)
    return None


@program(
    "an input that requires grad only sometimes",
    cures.REQUIRES_GRAD,
    "`detach()` what needs no gradient",
    ("pytorch/pytorch#131975",),
)
def requires_grad(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    for one in (torch.ones(3), torch.ones(3, requires_grad=True)):
        step(one.detach() if cured else one)
    return None


@program("inputs on two devices", cures.DEVICE, "`x.to('cpu')`")
def a_device(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    for device in ("cpu", "meta"):
        x = torch.ones(3, device=device)
        step(torch.ones(3).to("cpu") if cured else x)
    return None


@program("a conjugated view", cures.TENSOR_KIND, "`resolve_conj()`")
def a_kind_of_tensor(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    for x in (torch.ones(3, dtype=torch.complex64), torch.ones(3, dtype=torch.complex64).conj()):
        step(x.resolve_conj() if cured else x)
    return None


@program(
    "an optional tensor",
    cures.TENSOR_OR_NONE,
    "pass a neutral tensor, such as zeros of the usual shape",
    ("pytorch/pytorch#151122",),
)
def an_optional_tensor(cured: bool) -> object:
    step = compiled(lambda x, bias: x if bias is None else x + bias)
    return [step(torch.ones(3), bias) for bias in (torch.ones(3), torch.zeros(3) if cured else None)]


@program(
    "an optimizer whose gradients are None in some steps",
    cures.GRADIENT,
    "`optimizer.zero_grad(set_to_none=False)`",
    ("pytorch/pytorch#115607",),
)
def gradients_that_are_none(cured: bool) -> object:
    experts = [nn.Linear(2, 1, bias=False) for _ in range(2)]
    weights = [expert.weight for expert in experts]
    for weight in weights:
        torch.nn.init.ones_(weight)
        weight.grad = torch.zeros_like(weight) if cured else None
    optimizer = torch.optim.SGD(weights, lr=0.1)
    step = compiled(optimizer.step)
    for number in range(4):
        optimizer.zero_grad(set_to_none=not cured)
        experts[number % 2](torch.ones(2)).sum().backward()
        step()
    return [weight.detach() for weight in weights]


@program(
    "a mode that is entered around some calls",
    cures.MODES,
    "around every call of the function",
    ("pytorch/pytorch#151202",),
)
def a_mode(cured: bool) -> object:
    step, found = compiled(lambda x: x + torch.ones(x.shape)), []
    for number in range(2):
        with under(torch.device("cpu"), cured or number == 1):
            found.append(step(torch.ones(3)))
    return found


@program("one tensor for two arguments", cures.DUPLICATES, "`x.clone()`", ("pytorch/pytorch#111562",))
def one_tensor_twice(cured: bool) -> object:
    step = compiled(lambda x, y: x * y)
    x = torch.ones(2)
    return [step(x, torch.ones(2)), step(x, x.clone() if cured else x)]


@program("inputs that overlap only sometimes", cures.MEMORY, "`x.clone()`", ("pytorch/pytorch#185891",))
def shared_memory(cured: bool) -> object:
    step = compiled(lambda x, y: x.mul_(2) + y, backend="aotviz_eager")
    base, found = torch.ones(6), []
    found.append(step(torch.ones(4), torch.ones(4)))
    one, other = base[:4], base[2:]
    found.append(step(one, other.clone() if cured else other))
    return None


@program(
    "a tensor made in inference mode",
    cures.INFERENCE,
    "always outside `torch.inference_mode()`",
    ("pytorch/pytorch#134249", "pytorch/pytorch#148983"),
)
def an_inference_tensor(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    with torch.inference_mode(not cured):
        made = torch.ones(3)
    return [step(one) for one in (torch.ones(3), made)]


@program(
    "a tensor made in inference mode and used under no_grad",
    cures.INFERENCE_MODE,
    "tensors that are always made inside, or always outside, of `torch.inference_mode()`",
)
def an_inference_tensor_under_no_grad(cured: bool) -> object:
    with torch.no_grad():
        return an_inference_tensor(cured)


@program(
    "marks on only some tensors", cures.MARKS, "on every such tensor, before the first call", ("pytorch/pytorch#95389",)
)
def marks(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    for marked in (cured, True):
        x = torch.ones(4)
        if marked:
            torch._dynamo.mark_dynamic(x, 0)
        step(x)
    return None


@program(
    "training and evaluation", cures.GRAD_MODE, "Both are kept and reused", ("pytorch/pytorch#144068",), measure=settled
)
def grad_mode(cured: bool) -> object:
    step = STEPS.setdefault("grad mode", compiled(lambda x: x * 2))
    for on in (True, False):
        with torch.set_grad_enabled(on):
            step(torch.ones(3))
    return None


@program("autocast around some calls", cures.AUTOCAST, "around every call of the function")
def autocast(cured: bool) -> object:
    step = compiled(lambda x: x @ x)
    for on in (False, True):
        with torch.autocast("cpu", enabled=on or cured):
            step(torch.ones(2, 2))
    return None


@program(
    "torch.set_num_threads between calls",
    cures.THREADS,
    "before the first compiled call",
    ("pytorch/pytorch#93709",),
)
def threads(cured: bool) -> object:
    before = torch.get_num_threads()
    step = compiled(lambda x: x * 2)
    if cured:
        torch.set_num_threads(before + 1)
    step(torch.ones(2))
    torch.set_num_threads(before + 1)
    step(torch.ones(2))
    torch.set_num_threads(before)
    return None


@program("a default dtype that is set late", cures.SETTING, "before the first compiled call")
def default_dtype(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    x = torch.ones(3)
    try:
        for dtype in (torch.float64 if cured else torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            step(x)
    finally:
        torch.set_default_dtype(torch.float32)
    return None


@program(
    "deterministic algorithms that are switched on late",
    cures.SETTING,
    "before the first compiled call",
    ("pytorch/pytorch#113707",),
)
def deterministic(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    try:
        for on in (cured, True):
            torch.use_deterministic_algorithms(on)
            step(torch.ones(3))
    finally:
        torch.use_deterministic_algorithms(False)
    return None


STEPS: dict[str, Any] = {}  # of programs whose calls are made twice


@program("hooks on saved tensors around some calls", cures.SAVED_HOOKS, "around every call of the function")
def saved_hooks(cured: bool) -> object:
    step = compiled(lambda x: (x * 2).sin().cos(), backend="aot_eager")
    pack, unpack = map(torch.fx.symbolic_trace, (kept, kept))
    for on in (False, True):
        with under(torch.autograd.graph.saved_tensors_hooks(pack, unpack), on or cured):
            step(torch.ones(3, requires_grad=True))
    return None


def kept(x: torch.Tensor) -> torch.Tensor:
    return x


@program(
    "a backend that is made for each call",
    cures.BACKEND,
    "pass the same object to every `torch.compile`",
    ("pytorch/pytorch#168373", "pytorch/pytorch#167453"),
)
def a_backend(cured: bool) -> object:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    one, other = (lambda gm, _: gm for _ in range(2))
    return [torch.compile(double, backend=backend)(torch.ones(3)) for backend in (one, one if cured else other)]


@program("metadata of a tensor subclass", cures.SUBCLASS, "the same metadata in each call", ("pytorch/pytorch#130779",))
def a_subclass(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    for tag in ("one", "one" if cured else "other"):
        step(Tagged(torch.ones(3), tag))
    return None


@program(
    "GPT-2's blocks, compiled one by one",
    cures.WITHOUT_KV_CACHE,
    "`model.config.use_cache = False`",
    ("pytorch/pytorch#156520",),
    first=False,
)
def blocks_of_a_transformer(cured: bool) -> object:
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 3, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    model.config.use_cache = not cured
    for block in model.transformer.h:
        block.compile(backend="eager")
    for length in (8, 12):
        model(torch.zeros(2, length, dtype=torch.long))
    return None


def language_model() -> Any:
    """A small model of random weights, whose forward is compiled."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=16, pad_token_id=0, bos_token_id=1, eos_token_id=None, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()
    model.forward = compiled(model.forward)
    return model


def generated(model: Any, **options: str) -> object:
    return model.generate(torch.full((1, 5), 3), max_new_tokens=4, do_sample=False, **options)


@program(
    "a key-value cache that grows while tokens are generated",
    cures.GROWING_CACHE,
    '`model.generate(..., cache_implementation="static")`',
)
def tokens_that_are_generated(cured: bool) -> object:
    options = {"cache_implementation": "static"} if cured else {}
    return generated(language_model(), **options)


MODELS: dict[str, Any] = {}


@program("a prompt, then single tokens", cures.PROMPT, "so this happens once", (), settled)
def tokens_with_a_cache_of_fixed_size(cured: bool) -> object:
    if "model" not in MODELS:
        MODELS["model"] = language_model()
    return generated(MODELS["model"], cache_implementation="static")


class Recurrent(torch.nn.Module):
    def __init__(self, step: Any) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(3)
        for row in range(x.shape[0]):
            state = self.step(state, x[row])
        return state


@program("a loop over a size", cures.UNROLLED, "Compile what the loop calls in place of the loop")
def a_loop_over_time(cured: bool) -> object:
    def step(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (state + x).tanh()

    model = Recurrent(compiled(step)) if cured else compiled(Recurrent(step))
    return [model(torch.ones(rows, 3)) for rows in (2, 3, 4, 5)]


MASKS: dict[int, torch.Tensor] = {}


def mask(rows: int) -> torch.Tensor:
    return torch.full((rows, rows), -1.0).triu(1)


@program("a dictionary that the function fills", cures.FILLED, "compute the value in each call")
def a_dictionary_of_masks(cured: bool) -> object:
    def looked_up(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in MASKS:
            MASKS[x.shape[0]] = mask(x.shape[0])
        return x @ MASKS[x.shape[0]]

    MASKS.clear()
    step = compiled((lambda x: x @ mask(x.shape[0])) if cured else looked_up)
    return [step(torch.ones(2, rows)[:1].expand(rows, rows)) for rows in range(3, 10)]  # its cause costs most


LOSSES: list[torch.Tensor] = []


@program("a list that the function fills", cures.FILLED, "return the value and put it into")
def a_list_of_losses(cured: bool) -> object:
    def appended(x: torch.Tensor) -> torch.Tensor:
        LOSSES.append(x.sum())
        return x * 2

    LOSSES.clear()
    step, found = compiled((lambda x: (x * 2, x.sum())) if cured else appended), []
    for _ in range(4):
        result = step(torch.ones(3))
        if cured:
            result, loss = result
            LOSSES.append(loss)
        found.append(result)
    return found, list(LOSSES)


@program("a NumPy array of another dtype", cures.DTYPE_OF_ARRAY, "`x.astype('float64')`")
def an_array_of_another_dtype(cured: bool) -> object:
    step, single = compiled(lambda x: torch.as_tensor(x).sum() * 2), np.ones(3, np.float32)
    return [float(step(x)) for x in (np.ones(3), single.astype("float64") if cured else single)]


@program("arguments by keyword in some calls", cures.KEYS, "the same keys in each call")
def a_keyword_argument_sometimes(cured: bool) -> object:
    def attention(x: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        return x * given["mask"] if given else x * 1

    step, x = compiled(attention), torch.ones(3)
    return step(x, mask=torch.ones(3)) if cured else step(x), step(x, mask=torch.ones(3))


class Marked(torch.Tensor):
    pass


@program(
    "a tensor subclass in some calls", cures.TENSOR_CLASS, "`x.as_subclass(torch.Tensor)`", ("pytorch/pytorch#187073",)
)
def a_subclass_sometimes(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for x in (torch.ones(3), torch.ones(3).as_subclass(Marked)):
        found.append(step(x.as_subclass(torch.Tensor) if cured else x).as_subclass(torch.Tensor))
    return found


class Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def of_blocks(late: str, cured: bool, model: torch.nn.Module) -> object:
    """Call a compiled model twice, the second time frozen or converted, or both times."""
    step = compiled(model)
    for changed in (cured, True):
        if changed and late == "frozen":
            model.requires_grad_(False)
        elif changed:
            model.double()
        step(torch.ones(2, 3, dtype=next(model.parameters()).dtype))
    return None


@program("a layer of a list that is frozen after the first call", cures.FROZEN, "before the first call")
def a_frozen_layer(cured: bool) -> object:
    return of_blocks("frozen", cured, Blocks())


@program("a module of torch that is frozen after the first call", cures.FROZEN, "before the first call")
def a_frozen_module_of_torch(cured: bool) -> object:
    return of_blocks("frozen", cured, torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))


@program("a model that is converted after the first call", cures.CONVERTED, "before the first call")
def a_converted_model(cured: bool) -> object:
    return of_blocks("converted", cured, Blocks())


@program("a module of torch that is converted after the first call", cures.CONVERTED, "before the first call")
def a_converted_module_of_torch(cured: bool) -> object:
    return of_blocks("converted", cured, torch.nn.Linear(3, 3))


@program(
    "a recompile that is an error",
    cures.STANCE,
    "call the function with them before recompiles become errors",
    measure=errors,
)
def a_recompile_that_raises(cured: bool) -> object:
    step = compiled(lambda x: x * 2)
    for x in (torch.ones(3), torch.ones(3, 3)) if cured else (torch.ones(3),):
        step(x)
    with torch.compiler.set_stance("fail_on_recompile"):
        return step(torch.ones(3, 3))


@program(
    "a parameter group that is added to an optimizer",
    cures.PARAMETER_GROUPS,
    "Add all of them before the first step; a group can begin with `lr=torch.tensor(0.0)`",
)
def an_added_group(cured: bool) -> object:
    first, second = (torch.ones(3, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.SGD([first], lr=torch.tensor(0.1))
    rest = {"params": [second], "lr": torch.tensor(0.0 if cured else 0.1)}
    step = compiled(optimizer.step)
    for began in (cured, True):
        if began and len(optimizer.param_groups) == 1:
            optimizer.add_param_group(rest)
        first.grad, second.grad = torch.ones(3), torch.ones(3)
        step()
        rest["lr"].fill_(0.1)
    return None


@program("layers that are unfrozen one after the other", cures.FROZEN, "only the parameters to be changed")
def layers_unfrozen_in_turn(cured: bool) -> object:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    if not cured:
        model.requires_grad_(False)
    step = compiled(model, backend="aot_eager")
    for layer in (model[2], model[1], model[0]):
        layer.requires_grad_(True)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.zero_grad()
        step(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@program("no_grad in one call and inference mode in another", cures.INFERENCE_MODE, "Call it under one of the two")
def no_grad_and_inference_mode(cured: bool) -> object:
    step, x, found = compiled(lambda x: x * 2), torch.ones(3), []
    for mode in (torch.no_grad, torch.no_grad if cured else torch.inference_mode):
        with mode():
            found.append(step(x))
    return found
