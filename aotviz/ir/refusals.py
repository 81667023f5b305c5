"""What aotviz refuses to compile about aliases and mutations: one list, which `docs/refusals.md` explains.

A refusal comes before anything ran, names the input or the statement, and says what to do instead. Where
functionalisation or autograd raise in the middle of a trace, what they say is translated here.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.open_trace import is_library

REFUSALS = {
    "subclasses without a common base": (
        "{names} overlap in memory and one of them is mutated, and they have no storage that could be written in "
        "their stead: they are tensor subclasses, and not views of one. Pass a clone of one of them."
    ),
    "view with another history": (
        "{names} is a view that requires grad, and the tensor that it is a view of does not. Autograd forgets where "
        "such a view comes from when it, or another view of that tensor, is written or moved in place, and here that "
        "can't be repeated. Pass a clone of it."
    ),
    "alias is given another storage": (
        "{names} overlap in memory, and one of them is given another storage by set_. Use a clone of one of them."
    ),
    "set_ before a write": (
        "{names} that requires grad is given another storage by set_ or .data, and is written while gradients are "
        "recorded, or is a view and used afterwards. Pass a clone of it, or write to one."
    ),
    "alias gets a symbolic shape": (
        "{names} overlaps another input and gets a shape that is known only at the call. Compile with "
        "dynamic=False, or pass a clone of it."
    ),
    "view moved under autograd": (
        "{names}: a tensor is given another shape in place ({operator}), and its memory is written or read again "
        "while autograd looks. Autograd changes the history of everything that shares the memory, in a way that "
        "a trace can't repeat. Use {instead}, which returns a new view."
    ),
    "as_strided in a chain of views": (
        "a tensor is written through a view that as_strided gave its place in memory, and that memory, or the "
        "view, was moved in place before; or the tensor requires grad and does not start at the beginning of its "
        "storage; or that place lies outside of an argument that is itself a view. Write before moving, or write to a "
        "clone."
    ),
    "stale view": (
        "autograd refuses what this function does with a view in the order in which it is traced: {names}. Run "
        "this function in eager, or take the view after the write."
    ),
    "gradient needs what was written": (
        "a gradient of this function can't be had, in eager neither: {names} Run this function in eager if nobody "
        "asks for that gradient, or write to a clone."
    ),
    "written before the backward": (
        "{names} was written after the call of {operator} and before its backward, which reads it as it was: one of "
        "the variables needed for gradient computation has been modified by an inplace operation. Eager says so too "
        "where it kept the same tensor, and computes on where it kept another. Write after the backward, or to a clone."
    ),
    "written by a backward": (
        "{names} is written while gradients are computed, by a custom autograd.Function's backward or a gradient hook, "
        "which a compiled backward would not do. Write it in the forward or after the backward, or leave this part to "
        "eager."
    ),
    "second derivative": "{names} can't be differentiated a second time: {operator}",
    "one result of a function": (
        "not all results of {names} got a gradient, and some come from one autograd.Function, whose backward would "
        "have to be traced again for that, which can't be done: {operator}"
    ),
    "hook on an alias": (
        "{names} has a gradient hook or retains its gradient. A compiled call makes that tensor anew, or takes another "
        "in its stead, and the hook would miss gradients. Register it outside of the function, on a clone of what "
        "shares memory with another argument."
    ),
    "hook on a result": (
        "{names} has a gradient hook or retains its gradient, and gradients of other results pass it inside the "
        "compiled backward, which can't be cut there: {operator}. Compute these results outside."
    ),
    "gradient of a result": (
        "torch.autograd.grad asks for the gradient of {names}, and inside the compiled function other results were "
        "computed from it. That gradient never leaves the compiled backward. Compute these outside."
    ),
    "gradient of a moved leaf": (
        "torch.autograd.grad asks for the gradient of {names}, a leaf that the function gives another shape in place "
        "before it uses it. In eager that gradient has the new shape, and here it would have the old one. Use "
        "backward(), or the operator without the underscore."
    ),
    "hook of one call": (
        "the function registers a gradient hook on {names}, and {operator}. The hook is registered anew at each call, "
        "and must be good for all of them. Let it use only its gradient and what is the same at every call."
    ),
    "leaf that is a view": (
        "{names} requires grad and is itself a view of a tensor that does not. A view of it is used after a write to "
        "its memory, or to another view of that tensor, and autograd has then forgotten that it came from there. Pass "
        "a clone, or take the view after the write."
    ),
    "view is resized": (
        "the function resizes a view, or an input that shares memory with another, to more elements than it has. "
        "Resize the tensor that owns the memory."
    ),
    "resize of a symbolic shape": (
        "the function resizes a tensor whose sizes are symbols in this trace, by resize_ or an out= of another shape: "
        "{names}. Compile with dynamic=False, or pass a tensor of the right shape."
    ),
    "resized after a write": (
        "{names} is written and then resized, to more than its storage holds or to fewer elements; or it is a view "
        "with gaps in memory, resized to other elements and then written. Resize it before it is written, or a clone."
    ),
    "requires_grad changes": (
        "the function turns requires_grad of the input {names} {operator} in place, and not only once, or while a view "
        "from before is returned, or another input shares its memory. Do it before the call, on what you pass."
    ),
    "a new leaf is returned": (
        "{names} is made inside the function and made to require grad there. Returned, it would be a leaf that nothing "
        "ties to the other outputs. Call requires_grad_() on it after the call."
    ),
    "a leaf made inside": (
        "{names} requires grad after the call, and no input does before: it depends on a tensor that the function "
        "makes, and makes require grad. Pass that tensor, or detach what depends on it."
    ),
    "inference mode inside": (
        "{names} is made under torch.inference_mode() inside the function. Enter inference mode around the call, "
        "or use torch.no_grad() inside."
    ),
    "data is assigned": (
        "the function assigns {names}.data, and the value is an input, a view, or of another dtype, or what it is "
        "assigned to is a view, was viewed before, or is written as well. Assign a clone, or use copy_() "
        "under torch.no_grad()."
    ),
    "tensors are swapped": (
        "the function calls {names}, which makes each of two tensors the other one for everybody who holds it. Swap "
        "them outside, or return them in the other order."
    ),
    "old storage is written": (
        "{names} is given another storage, by set_ or by assigning its data, and what lies in the old one is written, "
        "which others see. Write to a clone."
    ),
    "argument is changed": (
        "{operator} changes what {names} holds, a thing of Python's, which a compiled call would not do. Return what "
        "is new; or use aotviz.compile(fn), which does to Python objects what the function does."
    ),
    "tensor is kept": (
        "{operator} keeps a tensor in {names} while it runs, which a compiled call would not do. What was kept is a "
        "stand-in of the trace, and has been taken out again. Make that tensor outside, and pass it as an argument or "
        "hold it as a buffer; or use aotviz.compile(fn)."
    ),
    "backward inside": (
        "the function calls backward(), which adds to the gradients of its inputs or parameters: a compiled call "
        "returns gradients, and does not assign them. Return what torch.autograd.grad(...) gives, or use "
        "aotviz.compile(fn), which leaves that line to Python."
    ),
    "gradient of an argument": (
        "the function reads or assigns the attribute .grad of {names}, which a compiled call is not given. Pass the "
        "gradient as an argument of its own; or use aotviz.compile(fn), which lifts it."
    ),
    "nested tensor inside": (
        "the function makes a nested tensor of the strided layout, which no trace can hold. A TransformerEncoder in "
        "evaluation mode makes one of its padding mask, unless it has enable_nested_tensor=False, and attention over "
        "jagged tensors makes some on a CPU."
    ),
    "value of a tensor": (
        "the program asks for the value {names}{operator}, or for a shape that depends on it, which no trace knows. "
        "Use torch.where, or torch.cond for a choice; a line that only spares work goes under `if not "
        "torch.compiler.is_compiling()`; or use aotviz.compile(fn), which leaves the line to Python."
    ),
    "storage is resized": (
        "the function resizes a storage by itself: {names}. A trace sees tensors, and not the memory that they lie in. "
        "Resize it before or after the call, or use resize_() of the tensor that owns it."
    ),
    "storage is an argument": (
        "the function hands a storage to an operator: {names}. A trace sees tensors, and not the memory that they lie "
        "in. Hand it the tensor."
    ),
    "NumPy inside": (
        "the function hands a tensor to NumPy: {names}. A trace can't follow it there. Use torch's own functions, or "
        "aotviz.compile(fn), which leaves such a line to Python."
    ),
    "random state inside": (
        "the function calls {names}. A trace draws nothing, and what a compiled call draws would not follow. Seed "
        "before the call; or use aotviz.compile(fn), which leaves that line to Python."
    ),
    "state of a tensor": (
        "the function asks for `{operator}` of {names}, or of a view of it. That may be another at each call, and a "
        "compiled call does not look. Ask before the call, and pass the answer; or use "
        "aotviz.compile(fn)."
    ),
    "address of a tensor": (
        "the function asks where a tensor lies in memory: {names}. In a trace it lies nowhere. Ask outside, or leave "
        "this function to eager."
    ),
    "write through a conjugate": (
        "a tensor is written through z.conj(), and read or written through z.real, z.imag or view_as_real: {names}. "
        "A trace takes the conjugate for a view without memory of its own. Write to z itself, or to a clone."
    ),
    "overlapping write": (
        "the function writes, by {names}, a tensor of which several elements are one in memory, or which shares some "
        "with what is read there. What comes of that depends on the order in which eager writes. Write to a clone."
    ),
    "class is not followed": (
        "input {names} is a {operator}, whose {instead} decides what torch's functions do with it, and a trace would "
        "not ask. Pass a plain tensor, give the class __tensor_flatten__ and __tensor_unflatten__, or use "
        "aotviz.compile(fn)."
    ),
    "sparse tensor inside": (
        "the function makes a tensor without strides: {names}. A trace holds strided tensors only. Leave this function "
        "to eager; or use aotviz.compile(fn), which leaves such a line to Python."
    ),
    "logarithm of a symbolic float": (
        "a gradient needs the logarithm of a Python float that changes from call to call, which torch cannot trace: "
        "{names}. Pass a tensor in place of the float."
    ),
    "layout is not strided": (
        "input {names} is a {operator} tensor; aotviz compiles strided tensors only. Pass {instead}, or leave "
        "this function to eager."
    ),
    "tensor is not an argument": (
        "{names} uses {operator} without taking it as an argument, so aotviz cannot trace what happens to it. To fix "
        "this, {instead}; or use aotviz.compile(fn), which finds such tensors itself."
    ),
    "parameter is replaced": (
        "the call assigns another tensor to the parameter or buffer {names}. Write into it instead ({instead}), or use "
        "aotviz.compile(module), which assigns it as eager does."
    ),
    "lazy module": (
        "{names} of {operator} has no shape until the first call. Call the module once before you compile it."
    ),
    "distributed module": (
        "{names} is a {operator}, which prepares communication in Python before each call; a compiled call would skip "
        "that. Wrap the compiled module instead: {operator}(aotviz.compile(module)); or use torch.compile(module, "
        'backend="aotviz").'
    ),
    "functionalization is switched off": (
        "disable_functionalization=True: aotviz always functionalizes what it traces. Leave this argument out."
    ),
    "script object without a fake class": (
        "input {names} is a script object of class {operator}, which has no fake class to trace with. Register one "
        'with torch._library.register_fake_class("{operator}"), or run this function in eager.'
    ),
    "side effect in a higher-order operator": (
        "a call with side effects (print, a method of a script object, an operator registered as effectful) is inside "
        "a function that is passed to cond, scan, map, while_loop or nested_compile_region. aotviz keeps the order of "
        "side effects only in the outermost graph. Move the call out of that function, or run it in eager."
    ),
    "generator before torch 2.13": (
        "the function draws from a torch.Generator of its own, and graphs of torch {names} cannot take one (those of "
        "torch 2.13 can). Use the default generator, or draw the numbers before the call and pass them."
    ),
    "random numbers on several devices": (
        "torch._functorch.config.functionalize_rng_ops is on, and the call draws random numbers on {names}, each of "
        "which has its own generator. Draw on one device, or switch functionalize_rng_ops off."
    ),
    "detached alias is written": (
        "{names} is a detached alias of {operator} and is written with a value that requires grad. Its grad_fn cannot "
        "be regenerated from {operator}. Return a clone of it, or detach the value before the write."
    ),
    "subclass is not rebuilt": (
        "a {names} cannot be put together from new inner tensors of the same shapes, as tracing does after a write or "
        "a view: {names}.__tensor_unflatten__ raised {operator}. If it is a view of another tensor, pass a clone of it."
    ),
    "part of a subclass by itself": (
        "{names} requires grad, and the function uses it directly instead of as a part of {operator}, so it needs a "
        "gradient of its own. Pass {names} as another argument, or detach it."
    ),
    "parts of subclasses overlap": (
        "{names} overlap in memory inside a tensor subclass, and one of them is written. aotviz cannot trace such a "
        "write. Pass a clone of one of them."
    ),
    "symbolic view of a subclass": (
        "{names} is a view of {operator}, which is written, and its strides or offset are symbolic. Return a clone of "
        "it, or compile with dynamic=False."
    ),
    "saved tensor hook writes": "{names} writes to its argument. Let the hook work on a copy.",
    "saved tensor hook of a subclass": (
        "{names} takes or returns a {operator}. A hook that is a graph may pack into plain tensors only: return the "
        "inner tensors, and build the subclass again in the unpack hook."
    ),
    "what_if with tensor subclasses": (
        "{names} takes tensor subclasses, and what_if cannot partition its graph again. Compile it with the other "
        "partition_fn instead."
    ),
}

_WHERE = "\n\nWhile executing "  # what FX's interpreter puts between a message and the node that it was at


class Refused(NotImplementedError):
    """aotviz can't compile this call. `reason` is the name of the refusal in docs/refusals.md."""

    def __init__(self, reason: str, names: str = "", operator: str = "", instead: str = "") -> None:
        super().__init__(REFUSALS[reason].format(names=names, operator=operator, instead=instead))
        self.reason = reason


def named(error: BaseException) -> BaseException:
    """The same error; what torch_private raised for lack of the list of refusals becomes a refusal."""
    if not isinstance(error, CannotTrace):
        return error
    names = _statement(error) if error.reason in _BY_STATEMENT else error.names
    refused = Refused(error.reason, names, error.operator, error.instead)
    _, mark, behind = str(error).partition(_WHERE)
    refused.args = (f"{refused}{mark}{behind}",)
    return refused


def in_words(error: BaseException) -> tuple[str, str]:
    """What a refusal says, and where in the user's program, "file:line in function" or "".

    FX's interpreter puts the node that it was at, and the user's frames that made it, behind the message.
    """
    message, _, behind = str(error).partition(_WHERE)
    frames = re.findall(r'File "(.*)", line (\d+), in (\S+)', behind)
    return message.strip(), "{}:{} in {}".format(*frames[-1]) if frames else ""


class RanInEager(UserWarning):
    """aotviz refused a graph of Dynamo's, which runs in eager instead: right, and not compiled."""


_SAID = {
    "encountered a mutation on a view chain of length": "as_strided in a chain of views",
    "as_strided_scatter: sizes": "as_strided in a chain of views",
    "A view was created in no_grad mode": "stale view",
    "A view was created in inference mode": "stale view",
    "is a view and its base or another view of its base has been modified inplace": "stale view",
    "is a view of a view which was created in no_grad mode": "stale view",
    "is a view and is being modified inplace. This view is the output of a function that returns": "stale view",
    "cannot mutate tensors with frozen storage": "old storage is written",
    "Cannot set version_counter for inference tensor": "inference mode inside",
    "needed for gradient computation has been modified by an inplace operation": "gradient needs what was written",
    "new_fn INTERNAL ASSERT FAILED": "leaf that is a view",
    "Attempted to resize a view tensor to a larger size": "view is resized",
    "Attempted to call resize_() on an invalid python storage": "storage is resized",
    "tried to directly modify sizes for customized tensor": "resize of a symbolic shape",
    "Cannot access data pointer of Tensor": "address of a tensor",
    "the data pointer on an invalid python storage": "address of a tensor",
    "view_as_real doesn't work on unresolved conjugated": "write through a conjugate",
    "argument of type: <class 'torch.storage.UntypedStorage'>": "storage is an argument",
    "argument of type: <class 'torch.storage.TypedStorage'>": "storage is an argument",
    ".numpy() is not supported for tensor subclasses": "NumPy inside",
    "Cannot backprop through mirrored meta": "backward inside",
    "Cannot access storage of OpaqueTensorImpl": "sparse tensor inside",
    "NYI log symbolic float": "logarithm of a symbolic float",
    "NestedTensorImpl doesn't support sizes": "nested tensor inside",
    "_nested_tensor_from_tensor_list": "nested tensor inside",
}


_UNNAMED = {
    "inference mode inside": "a view",
    "old storage is written": "a tensor",
    "leaf that is a view": "a leaf",
}


_BY_STATEMENT = (
    "resize of a symbolic shape",
    "storage is resized",
    "storage is an argument",
    "NumPy inside",
    "sparse tensor inside",
    "address of a tensor",
    "write through a conjugate",
)


def _statement(error: BaseException) -> str:
    """The line of the user's program that an error comes from."""
    lines = [f for f in traceback.extract_tb(error.__traceback__) if not is_library(f.filename)]
    return f"`{lines[-1].line}` in {lines[-1].name}, line {lines[-1].lineno}" if lines else "a line of it"


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the trace as refusals, where it is the trace that gives rise to them."""
    try:
        yield
    except CannotTrace as error:
        raise named(error) from error
    except RuntimeError as error:
        text = str(error)
        for said, reason in _SAID.items():
            if said in text:
                names = _UNNAMED.get(reason) or text.strip().splitlines()[0]
                raise Refused(reason, _statement(error) if reason in _BY_STATEMENT else names) from error
        raise
