"""What to do where an export failed or is unsound."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

UNDECIDED = Cure(
    "condition on a number that is not known",
    "If the answer is always the same, say so before this line{named}: {check}. If both answers occur, keep both "
    "in the program with `torch.cond` or `torch.where`. If the number is known before the {before}, pass a Python "
    "int.",
)
BRANCH = Cure(
    "condition that reads a tensor",
    "Keep both sides in the program: `torch.where` computes both and chooses by the tensor, and `torch.cond` runs one "
    "of two functions. If the answer is always the same, leave the condition out; if it is known before the {before}, "
    "pass it as a Python bool.",
)
UNKNOWN_NUMBER = Cure(
    "number that is not known",
    "If it is always the same, say so before this line{named}: {check}. Otherwise keep it in a tensor, and compute "
    "with the whole tensor.",
)
LENGTH = Cure(
    "number of entries that is not known",
    "If it is always the same, say so before this line, with the number for `n`: `torch._check({name}.shape[0] == n)`. "
    "Otherwise compute with the whole tensor in place of its entries.",
)
NO_FAKE = Cure(
    "operator without a fake kernel",
    'Register one: `@torch.library.register_fake("{name}")` on a function with the operator\'s arguments that '
    "returns, for example, `torch.empty_like(x)`.",
    anywhere=True,
)
FAKE_RAISES = Cure(
    "fake kernel that raises",
    "Correct this line. It is in the function that `register_fake` registers, which torch calls with tensors that have "
    "shapes and no values. `torch.library.opcheck` tests it.",
)
WRONG_FAKE = Cure(
    "wrong fake kernel",
    'Correct the function that is registered by `torch.library.register_fake("{name}")`; '
    "`torch.library.opcheck` tests it.",
)
UNLIKE_FAKE = Cure(
    "operator that returns something else than its fake kernel",
    "Let the function that is registered by `register_fake`{at} return a tensor with the shape, strides and dtype that "
    "`{name}` itself returns. `torch.library.opcheck` compares the two, for inputs of this call's shapes and strides: "
    "`torch.empty_like(x)` has the strides of `x`, `x.new_empty(x.shape)` those of a contiguous tensor.",
)
GUARDED = Cure(
    "guard in a draft export",
    "If the guard always holds, give the dimension that range or relation in `dynamic_shapes` (`torch.export.Dim`);"
    " otherwise change the line that needs it.",
)
SUGGESTED = Cure(
    "dimension with too many sizes",
    "If you need no other sizes, make these dimensions and give them in `dynamic_shapes`: {dimensions}. Otherwise "
    "change the line that needs it.",
)
BOUND = Cure(
    "bound of a dimension",
    "Give the dimension this bound in `dynamic_shapes`: `torch.export.Dim(..., {bound})`. If other sizes are needed, "
    "change what the line reads: a table of positions, for example, needs a row for each.",
)
ONE_DIMENSION = Cure(
    "dimensions that have to be equal",
    "If they are always equal, give both the same dimension in `dynamic_shapes`: `{other}` in place of `{one}`.",
)
UNFINISHED = Cure(
    "export that did not finish",
    "Run the program in eager with the same inputs. If that works, the error is about `dynamic_shapes`, or about an "
    "input of a class that torch does not know: `torch.export.export` prints it, and `aotviz.watch()` tells it.",
)
EXAMPLE_OF_1 = Cure(
    "example of size 1",
    "Sizes 0 and 1 are always constants. Export with an example that has at least 2 in each dimension that is to be "
    "dynamic.",
)
EXAMPLE_OUTSIDE = Cure(
    "example outside of its Dim",
    "Export with an example whose size is one that the `Dim` allows, or give the `Dim` another `min` or `max`.",
)
NO_MODULE = Cure(
    "export of a function", "Put the function into the `forward` of a `torch.nn.Module`, and export that module."
)
NUMPY = Cure(
    "NumPy in an export",
    "Export with `strict=True`, which traces functions of NumPy, or use torch's functions in their place.",
)
SHAPE_OF_NO_TENSOR = Cure(
    "dimension of an argument that is no tensor",
    "Give None for `{name}` in `dynamic_shapes`: it is no tensor in this call.",
)
EXPORTED_SIZE = Cure(
    "exported program for one size",
    "It was exported for this size alone. Export with "
    '`dynamic_shapes={{"{name}": {{{index}: torch.export.Dim("size")}}, ...}}`, with None for each other argument, '
    "or call it with that size.",
)
STOPPED = Cure("export that stopped at a line", "Call the module in eager with the same inputs first.")
RETURNED = Cure(
    "export that stopped at the end",
    "All was traced up to this line. If it returns an object of a class of your own, return a tensor, or a tuple or "
    "dict of tensors, or register the class (`torch.export.register_dataclass`). Otherwise call the module in eager "
    "first.",
)
LEFT_OUT = Cure(
    "attribute that an exported program does not set",
    'If a later call reads `{name}`, make it a buffer in `__init__` (`self.register_buffer("{own}", ...)`, with a '
    "tensor of the same shape), and write into it in `forward`, with `.copy_(...)` or `.add_(...)`. Or return the "
    "value. If it is not read later, nothing is to be done.",
)
UNLOGGED = Cure(
    "export without records",
    "Set TORCH_DTRACE=folder in place of TORCH_TRACE: torch then also logs exported programs and decisions.",
)
FIXED_SIZE = Cure(
    "line that fixed a size",
    "Change the line so that it holds for other sizes too. If it compares the size with that of another tensor, as "
    "`@` and `+` do, mark that tensor's dimension as well, or take of a table as many rows as there are: "
    "`table[:x.shape[0]]`. If it needs a Python number, index a tensor in place of a "
    "list, use the size itself in place of the length of a list, or compute the value outside and pass it as a tensor.",
)
WRITTEN_SIZE = Cure(
    "size that is written as a number",
    "The line has the size as the number {value}. Write what it is the size of in its place, `{size}`, or -1 in a "
    "`view`.",
)
ACCEPTED_SIZE = Cure("size that may be a constant", "If the constant is right, mark with {marks}, which allows it.")
INPUT_CLASS = Cure(
    "input of an export that torch cannot take apart",
    "Register its class before the export, so that torch knows which tensors it holds: for a dataclass, "
    "`torch.export.register_dataclass({name})`, and for others `torch.utils._pytree.register_pytree_node`. Or pass "
    "these tensors.",
)
NAMES_OF_SHAPES = Cure(
    "dynamic_shapes with other names than the arguments",
    "The keys of `dynamic_shapes` are the names of the arguments of `forward`, all that are passed: {names}.",
)
