"""What to do about a recompile: one sentence or two for each sort of guard that fails.

Each says the cheapest remedy first, names the user's own value, and says so where a recompile is as it should be.
"""

from __future__ import annotations

from collections.abc import Sequence

UNKNOWN = (
    'Set TORCH_LOGS="recompiles_verbose" in the environment and run again: torch then prints every guard that failed.'
)
UNEXPECTED = "Something changed between the two looks, for instance in another thread. Worth a report to PyTorch."
OTHER = "Keep this value as it was, or move what reads it out of the compiled function."
INFERENCE = (
    "Make the tensor inside or outside `torch.inference_mode()` always. A second program is kept and reused, so this "
    "happens only once."
)
MARKS = (
    "Call `mark_dynamic`, `maybe_mark_dynamic` or `mark_static` on every tensor of this kind, before the first call."
)
ATTRIBUTE = "Set the attribute before the first call, for instance in `__init__`, and keep it."
BACKEND = (
    "Make the backend once and hand the same object to every `torch.compile`; a lambda or partial made anew is another."
)
SUBCLASS = (
    "Give tensors of this subclass the same metadata in each call, or keep it out of what the subclass guards on."
)
SAVED_HOOKS = "Enter `torch.autograd.graph.saved_tensors_hooks` around all calls of the function, or around none."
ONCE = "Both programs are kept and reused, so this happens once for each value."


def size(name: str, index: int, after: str, parameter: bool) -> str:
    if parameter:
        return (
            f"`{name}` is a parameter, whose sizes torch takes as fixed. Compile each size on purpose, or set "
            "`torch._dynamo.config.force_parameter_static_shapes = False`."
        )
    if after in ("0", "1"):
        return (
            f"Sizes 0 and 1 always get a program of their own. Pad dimension {index} of `{name}` to at least 2, or "
            f"drop the odd last batch (`drop_last=True`), or `torch._dynamo.decorators.mark_unbacked({name}, {index})`."
        )
    return (
        f"If this size varies, say so before the first call: `torch._dynamo.mark_dynamic({name}, {index})`, or "
        "`torch.compile(..., dynamic=True)`. If it need not vary, pad to one size."
    )


def symbolic(condition: str) -> str:
    return (
        "A branch on the size splits the sizes into ranges, and each range needs a program. Take the branch out of the "
        "compiled function or make it with `torch.where` or `torch.cond`; if only few ranges occur, nothing is wrong. "
        "If the bound is 2, size 1 is special: pad it away or use `mark_unbacked`."
    )


def stride(name: str) -> str:
    return f"Hand it over in one layout: `{name}.contiguous()` before the call, or the same `memory_format` everywhere."


def dtype(name: str, before: str) -> str:
    return f"Convert before the call, `{name}.to(torch.{before})`, if one dtype is meant. {ONCE}"


def rank(name: str) -> str:
    return (
        f"Give `{name}` one number of dimensions, for instance with `unsqueeze` or `reshape` before the call. "
        "The number of dimensions cannot be dynamic."
    )


def requires_grad(name: str) -> str:
    return (
        f"Decide once whether `{name}` requires a gradient: freeze or unfreeze before the first call, `detach()` what "
        f"needs none. {ONCE}"
    )


def device(name: str, before: str) -> str:
    return f"Move it before the call, `{name}.to('{before}')`, if one device is meant. {ONCE}"


def tensor_kind(name: str) -> str:
    return f"Hand over one kind of tensor as `{name}`; conjugated or negated views become plain by `resolve_conj()`."


def tensor_or_not(name: str) -> str:
    return (
        f"If `{name}` is optional, two programs are needed and both are kept. Otherwise pass an empty or neutral "
        "tensor in place of None."
    )


def none(name: str) -> str:
    return tensor_or_not(name)


def duplicates(both: str) -> str:
    return f"If {both} are meant to be alike, pass a copy (`x.clone()`). Otherwise both programs are kept and reused."


def memory(both: str) -> str:
    return (
        f"A program is made for one way in which {both} lie in memory. Pass views of one storage always or never, for "
        "instance a copy (`x.clone()`); otherwise both programs are kept and reused."
    )


def global_state(names: Sequence[str]) -> str:
    if "grad_mode" in names:
        return (
            "Training and evaluation need a program each; both are kept, so this happens once. If it comes as a "
            "surprise, see which call runs inside `torch.no_grad()`."
        )
    if "num_threads" in names:
        return "Call `torch.set_num_threads` before the first compiled call, and not again."
    if "autocast_state" in names:
        return f"Enter `torch.autocast` around all calls of the function, or around none. {ONCE}"
    return f"Set this once, before the first compiled call. {ONCE}"


def function(name: str) -> str:
    return (
        f"A function or lambda made anew for each call is a new program each time: define `{name}` once, outside the "
        "loop, and pass that."
    )


def identity(name: str) -> str:
    return (
        f"Torch compiled `{name}` in as this one object. Keep the object and change what is in it, or pass what varies "
        "as an argument; objects made anew for each call cost a compilation each."
    )


def type_changed(name: str) -> str:
    return f"Pass one type, for instance `tuple({name})` always. {ONCE}"


def keys(name: str) -> str:
    return (
        f"Give `{name}` the same keys in each call, with None or a neutral value where there is nothing, or pass "
        "the one value instead of the dictionary."
    )


def length(name: str) -> str:
    return (
        f"A loop over `{name}` is unrolled, so each length is a program. Stack the elements into one tensor with a "
        "dynamic dimension, or pad to a fixed length."
    )


def deleted(name: str) -> str:
    return f"Keep `{name}` alive as long as the compiled function is used; what is made anew is compiled anew."


def value(name: str, before: str, from_global: bool, module: bool, training: bool) -> str:
    if training:
        return "`train()` and `eval()` need a program each; both are kept, so this happens once."
    if before in ("True", "False"):
        return f"A branch on `{name}` needs a program for each side; both are kept, so this happens once."
    number = before.replace(".", "", 1).replace("-", "").replace("e", "").isdigit()
    if number and module:
        return (
            f"Numbers on a module are compiled in. Count or schedule `{name}` outside `forward`, or keep it in a "
            "tensor (`register_buffer`), or set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`."
        )
    if number and from_global:
        return f"Globals are compiled in. Pass `{name}` as an argument, as a tensor if it changes often."
    if number:
        return (
            f"Numbers are compiled in until they are seen to vary. If `{name}` varies, pass `torch.tensor({name})`; a "
            "branch on it inside the function keeps a program for each side."
        )
    if from_global:
        return f"Globals are compiled in. Set `{name}` once, or pass it as an argument. {ONCE}"
    return f"Each value of `{name}` is compiled in: fine for a few values, otherwise move the choice outside."
