"""What to do about a recompile: one or two sentences for each kind of guard that fails.

Each text names the user's value, gives the cheapest remedy first, and says so if the recompile is expected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

UNKNOWN = (
    'Set TORCH_LOGS="recompiles_verbose" in the environment and run again: torch then prints every guard that failed.'
)
UNEXPECTED = "Something changed between the two checks, for example in another thread. Please report it to PyTorch."
OTHER = "Keep this value the same, or move the code that reads it out of the compiled function."
INFERENCE = (
    "Create the tensor always inside or always outside `torch.inference_mode()`. A second program is kept "
    "and reused, so this happens only once."
)
MARKS = "Call `mark_dynamic`, `maybe_mark_dynamic` or `mark_static` on every such tensor, before the first call."
ATTRIBUTE = "Set the attribute before the first call, for example in `__init__`, and keep it."
BACKEND = (
    "Create the backend once and pass the same object to every `torch.compile`; a new lambda or partial "
    "counts as another backend."
)
SUBCLASS = (
    "Give tensors of this subclass the same metadata in each call, or keep it out of what the subclass guards on."
)
SAVED_HOOKS = "Use `torch.autograd.graph.saved_tensors_hooks` around every call of the function, or around no call."
ONCE = "Both programs are kept and reused, so this happens once for each value."
SYMBOLIC = (
    "A branch on the size splits the sizes into ranges, and each range needs a program. Move the branch "
    "out of the compiled function, or use `torch.where` or `torch.cond`; if there are only a few ranges, "
    "nothing is wrong. If the bound is 2, size 1 is a special case: pad to at least 2 or use "
    "`mark_unbacked`."
)

# To be filled in with `name`, the user's own value, and `before`, what it was.
STRIDE = (
    "Pass it always in the same memory layout: `{name}.contiguous()` before the call, or the same "
    "`memory_format` everywhere."
)
DTYPE = f"If you meant to use one dtype, convert before the call: `{{name}}.to(torch.{{before}})`. {ONCE}"
RANK = (
    "Give `{name}` the same number of dimensions in each call, for example with `unsqueeze` or `reshape` "
    "before the call. The number of dimensions cannot be dynamic."
)
REQUIRES_GRAD = (
    "Decide once whether `{name}` requires grad: freeze or unfreeze it before the first call, and "
    f"`detach()` what needs no gradient. {ONCE}"
)
DEVICE = f"If you meant to use one device, move it before the call: `{{name}}.to('{{before}}')`. {ONCE}"
TENSOR_KIND = (
    "Pass the same kind of tensor as `{name}`; `resolve_conj()` and `resolve_neg()` turn conjugated or "
    "negated views into plain tensors."
)
TENSOR_OR_NONE = (
    "If `{name}` is optional, two programs are needed and both are kept. Otherwise pass an empty or neutral "
    "tensor in place of None."
)
DUPLICATES = (
    "If {name} should be separate tensors, pass a copy (`x.clone()`). Otherwise both programs are kept and reused."
)
MEMORY = (
    "Each program is valid for one way in which {name} share memory. Pass views of one storage always or "
    "never, for example by passing a copy (`x.clone()`). Otherwise both programs are kept and reused."
)
FUNCTION = (
    "A function or lambda that is created again for each call needs a new program each time: define "
    "`{name}` once, outside the loop, and pass that."
)
IDENTITY = (
    "The program is valid only for this object `{name}`. Keep the object and change its contents, or "
    "pass the varying value as an argument; each new object costs a compilation."
)
TYPE = f"Always pass the same type, for example `tuple({{name}})`. {ONCE}"
KEYS = (
    "Give `{name}` the same keys in each call, with None or a neutral value for missing entries, or pass "
    "the value itself instead of the dictionary."
)
LENGTH = (
    "A loop over `{name}` is unrolled, so each length is a program. Stack the elements into one tensor with a "
    "dynamic dimension, or pad to a fixed length."
)
DELETED = "Keep `{name}` alive as long as you use the compiled function; a new object needs a new compilation."


def size(name: str, index: int, after: str, parameter: bool) -> str:
    if parameter:
        return (
            f"`{name}` is a parameter, and torch treats the sizes of parameters as fixed. Accept one program "
            "for each size, or set `torch._dynamo.config.force_parameter_static_shapes = False`."
        )
    if after in ("0", "1"):
        return (
            f"Sizes 0 and 1 always get a program of their own. Pad dimension {index} of `{name}` to at least 2, or "
            f"drop the odd last batch (`drop_last=True`), or `torch._dynamo.decorators.mark_unbacked({name}, {index})`."
        )
    return (
        f"If this size varies, mark it before the first call: `torch._dynamo.mark_dynamic({name}, {index})`, "
        "or `torch.compile(..., dynamic=True)`. If it does not have to vary, pad to one size."
    )


def global_state(names: Sequence[str]) -> str:
    if "grad_mode" in names:
        return (
            "Training and evaluation need one program each; both are kept, so this happens once. If you did "
            "not expect this, check which call runs inside `torch.no_grad()`."
        )
    if "num_threads" in names:
        return "Call `torch.set_num_threads` before the first compiled call, and not again."
    if any(name.startswith("autocast") for name in names):
        return f"Use `torch.autocast` around every call of the function, or around no call. {ONCE}"
    return f"Set this once, before the first compiled call. {ONCE}"


_KEPT = re.compile(
    r"(?: and both are kept(?=\.)|; (?:both are|a second program is) kept[^.]*|"
    r" ?(?:Otherwise b|B)oth programs are kept and reused[^.]*\.|"
    r" A second program is kept[^.]*\.)"
)


def at_the_limit(fix: str) -> str:
    """An advice for a function that has as many programs as torch keeps: no further one is kept.

    >>> at_the_limit(DEVICE.format(name="x", before="cpu"))
    "If you meant to use one device, move it before the call: `x.to('cpu')`."
    """
    return _KEPT.sub("", fix)


def of_the_caller(fix: str, subject: str) -> str:
    """An advice about an argument of a library's function, in which the user cannot mark anything.

    >>> of_the_caller("call `torch._dynamo.mark_dynamic(args[0], 1)`", "args[0].shape[1]")
    'call `torch._dynamo.mark_dynamic(tensor, 1)`, where `tensor` is what you pass as `args[0]`'
    """
    name = subject.partition(".shape")[0]
    mark = re.escape(f"`torch._dynamo.mark_dynamic({name}, ") + r"(\d+)\)`"
    told = rf"`torch._dynamo.mark_dynamic(tensor, \1)`, where `tensor` is what you pass as `{name}`"
    return re.sub(mark, told, fix)


KV_CACHE = re.compile(r"\.layers\[\d+\]\.is_initialized$|past_key_values?\b")
WITHOUT_KV_CACHE = (
    "The blocks of a model share one code, and the key-value cache gives each block constants of its own. Switch the "
    "cache off where it is not needed, as in training: `model.config.use_cache = False`. Then the blocks share "
    "programs."
)
UNTIL_IT_CHANGES = "Numbers are compiled as constants until they change for the first time"


def constant(name: str) -> str:
    """For a number that was compiled for each of several values."""
    if "." in name:
        return (
            f"`{name}` is an attribute of an object, and each of its values is a constant of its own program. Keep "
            f"it in a tensor: `{name} = torch.tensor(...)`, made once, before the first call."
        )
    return (
        f"Each value of `{name}` is a constant of a program of its own here. Pass `torch.tensor({name})`, or compile "
        "with `dynamic=None`, where a number that changes becomes a symbol."
    )


def value(name: str, before: str, from_global: bool, module: bool, training: bool) -> str:
    if training:
        return "`train()` and `eval()` need one program each; both are kept, so this happens once."
    if before in ("True", "False"):
        return f"A branch on `{name}` needs a program for each side; both are kept, so this happens once."
    if ".param_groups[" in name:
        return (
            "The numbers of an optimizer are compiled as constants. Make this one a tensor, which is filled in place: "
            "`SGD(parameters, lr=torch.tensor(0.1))` and `group['lr'].fill_(value)`. torch's schedulers do that."
        )
    number = before.replace(".", "", 1).replace("-", "").replace("e", "").isdigit()
    if number and module:
        return (
            f"Numbers on a module are compiled as constants. Update `{name}` outside `forward`, or keep it in "
            "a tensor (`register_buffer`), or set `torch._dynamo.config.allow_unspec_int_on_nn_module = "
            "True`."
        )
    if number and from_global:
        return f"Globals are compiled as constants. Pass `{name}` as an argument, as a tensor if it changes often."
    if number:
        return (
            f"{UNTIL_IT_CHANGES}. If `{name}` varies, "
            f"pass `torch.tensor({name})`; with a branch on it inside the function, each side still needs its "
            "own program."
        )
    if from_global:
        return f"Globals are compiled as constants. Set `{name}` once, or pass it as an argument. {ONCE}"
    return (
        f"Each value of `{name}` is compiled as a constant. That is fine for a few values; otherwise move the "
        "choice out of the function."
    )


def taken_size(after: str) -> str:
    """For a part of a captured backward."""
    if after in ("0", "1"):
        return (
            "Sizes 0 and 1 always get a program of their own, once each. Pad to at least 2, or drop the odd last batch."
        )
    return (
        "Nothing is to be done: what changed is a symbol in this program, so other sizes need no new one. "
        "`aotviz.compiled_autograd(dynamic=True)` makes all sizes symbols at once."
    )


AUTOGRAD_GRAPH = (
    "A backward is captured once for each autograd graph. If the forward takes a few different paths, nothing is to be "
    "done: each is captured once. If it differs at every step, let the forward take one path, or leave such a backward "
    "to autograd's engine with `with aotviz.compiled_autograd.disable():`."
)
FORWARD = (
    "Each program of the forward has a backward of its own, which is captured once. Find out why the forward was "
    "compiled again, and cure that."
)
LIFTED = (
    "A captured backward takes its tensors and sizes as inputs, which cannot be marked. Let the compiler of the "
    "captured graph make sizes symbolic: `torch.compile` without `dynamic=False`."
)
GRADIENT = (
    "A backward that sets a gradient and one that adds to it are captured separately, once each. To have only the "
    "first, call `optimizer.zero_grad()` (or set `.grad` to None) before each backward."
)
HOOKS = "Register the hooks once, before the first backward, and keep them."
KEPT_SIZE = (
    "Nothing is to be done: sizes that changed are symbols in this capture, so other sizes need no new one. "
    "`aotviz.compiled_autograd(dynamic=True)` captures them as symbols at once."
)
TAKEN_STRIDES = (
    "Each memory layout of what the forward keeps needs a program of its own. Let the forward work on one layout, for "
    "example with `.contiguous()` on its inputs, or with the same `memory_format` everywhere."
)
SIZES_OF_TORCHS = "Nothing is to be done: these sizes are symbols in this capture, so other sizes need no new one."
DROPPED = (
    "Call all backwards inside autocast or all outside of it (torch recommends outside). Let autograd's engine run a "
    "backward that cannot be captured: `with aotviz.compiled_autograd.disable():`."
)
