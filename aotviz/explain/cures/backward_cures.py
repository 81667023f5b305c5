"""What to do where a backward that was captured whole (compiled autograd) is captured or compiled again."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

TAKEN_SIZE_1 = Cure(
    "size 0 or 1 in a backward",
    "Sizes 0 and 1 always get a program of their own, once each. Pad to at least 2, or drop the odd last batch.",
)
TAKEN_SIZE = Cure(
    "size in a part of a backward",
    "Nothing is to be done: what changed is a symbol in this program, so other sizes need no new one. "
    "`aotviz.compiled_autograd(dynamic=True)` makes all sizes symbols at once.",
)
AUTOGRAD_GRAPH = Cure(
    "another autograd graph",
    "A backward is captured once for each autograd graph. If the forward takes a few different paths, nothing is to be "
    "done: each is captured once. If it differs at every step, let the forward take one path, or leave such a backward "
    "to autograd's engine with `with aotviz.compiled_autograd.disable():`.",
)
FORWARD = Cure(
    "another program of the forward",
    "Each program of the forward has a backward of its own, which is captured once. Find out why the forward was "
    "compiled again, and cure that.",
)
LIFTED = Cure(
    "input of a captured backward",
    "A captured backward takes its tensors and sizes as inputs, which cannot be marked. Let the compiler of the "
    "captured graph make sizes symbolic: `torch.compile` without `dynamic=False`.",
)
GRADIENT = Cure(
    "gradient set or added to",
    "A backward that sets a gradient and one that adds to it are captured separately, once each. To have only the "
    "first, call `optimizer.zero_grad()` (or set `.grad` to None) before each backward. To have only the second, as "
    "where gradients are accumulated, begin with gradients of zeros (`p.grad = torch.zeros_like(p)`) and use "
    "`optimizer.zero_grad(set_to_none=False)`.",
)
HOOKS = Cure("number of hooks", "Register the hooks once, before the first backward, and keep them.")
KEPT_SIZE = Cure(
    "size that a backward keeps",
    "Nothing is to be done: sizes that changed are symbols in this capture, so other sizes need no new one. "
    "`aotviz.compiled_autograd(dynamic=True)` captures them as symbols at once.",
)
TAKEN_STRIDES = Cure(
    "memory layout in a backward",
    "Each memory layout of what the forward keeps needs a program of its own. Let the forward work on one layout, for "
    "example with `.contiguous()` on its inputs, or with the same `memory_format` everywhere.",
)
SIZES_OF_TORCHS = Cure(
    "sizes of torch's compiled autograd",
    "Nothing is to be done: these sizes are symbols in this capture, so other sizes need no new one.",
    settled=True,
)
HOOK_VALUE = Cure(
    "number that a gradient hook uses",
    "A captured backward has the number as a constant, and makes it a symbol when it changes for the first time. Give "
    "the hook a tensor in its place, `torch.tensor(scale)`: then one program fits all values.",
)
DROPPED = Cure(
    "dropped captures",
    "Call all backwards inside autocast or all outside of it (torch recommends outside). Let autograd's engine run a "
    "backward that cannot be captured: `with aotviz.compiled_autograd.disable():`.",
)
WRITTEN = Cure(
    "result written before its backward",
    "The backward needs this value as it was. Compute a new one (`y = y * 2`, not `y *= 2`), or write it after the "
    "backward. If it is a parameter, the step of an optimizer wrote it: compute this loss again after the step.",
)
DOUBLE = Cure(
    "second derivative of a compiled function",
    "Where the gradient is differentiated again (`create_graph=True`), call the function or module without "
    '`torch.compile`, or compile it with `backend="aotviz"`, whose gradients can be differentiated.',
)
TWICE = Cure(
    "second backward of one call",
    "Add what is to be differentiated and call `.backward()` once, or call the compiled function again before each "
    "backward.",
)
DONATED = Cure(
    "backward that is called again, and has donated its buffers",
    "Set `torch._functorch.config.donated_buffer = False` before the first call of the compiled function: its backward "
    "may then be called with `retain_graph=True`, and needs more memory.",
    settings={"torch._functorch.config.donated_buffer": False},
)
SAVED_INFERENCE = Cure(
    "inference tensor in what is trained",
    "Make {what} outside of `torch.inference_mode()`, for example under `torch.no_grad()` in its place, or take a copy "
    "of it before training: `{name} = {name}.clone()`.",
)
NO_FORMULA = Cure(
    "operator without a backward formula",
    'Register one: `torch.library.register_autograd("{space}::{op}", backward, setup_context=setup_context)`.',
)
FORMULA_RAISES = Cure(
    "backward formula that raises",
    "Correct this line. It is in the formula that `register_autograd` registers, which also raises in eager.",
)
