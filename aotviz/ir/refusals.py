"""What aotviz refuses to compile: one list of rules, which `docs/refusals.md` explains.

A refusal names the input or the statement, says what to do instead, and where to read about its rule. If
functionalization or autograd raises an error in the middle of a trace, it is translated into a refusal here.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from aotviz.ir.user_code import is_library
from aotviz.torch_private.cannot_trace import CannotTrace


@dataclass(frozen=True)
class Rule:
    """A reason for which programs are refused."""

    name: str
    sentence: str  # with {names}, {operator}, {instead}

    @property
    def place(self) -> str:
        """Where the docs explain it.

        >>> Rule("set_ before a write", "").place
        'docs/refusals.md#set_-before-a-write'
        """
        return f"docs/refusals.md#{re.sub(r'[^a-z0-9_]+', '-', self.name.lower())}"

    def message(self, names: str, operator: str, instead: str) -> str:
        said = self.sentence.format(names=names, operator=operator, instead=instead)
        return f'{said} (Rule "{self.name}": {self.place})'


def _read(text: str) -> dict[str, Rule]:
    """{name: rule}, from a text in which each sentence is indented below its name."""
    entries = re.findall(r"^(\S.*):\n((?: .*\n)+)", text, re.MULTILINE)
    return {name: Rule(name, " ".join(sentence.split())) for name, sentence in entries}


RULES = _read(
    """
subclasses without a common base:
  {names} overlap in memory and one of them is written. They are tensor subclasses and not views of one tensor, so
  there is no common base that the compiled code could write to. Pass a clone of one of them.
view whose base does not require grad:
  {names} is a view that requires grad, and its base does not. A write, or a metadata op (`t_`, `squeeze_`), on this
  view or on another view of that base makes autograd replace the view's grad_fn, and the compiled code cannot
  reproduce that. Pass a clone of it.
alias is given another storage:
  {names} overlap in memory, and set_ gives one of them another storage. Use a clone of one of them.
set_ before a write:
  {names} requires grad and is given another storage by set_ or .data; it is then written while grad mode is on, or it
  is a view that is used afterwards. Pass a clone of it, or write to a clone.
alias gets a symbolic shape:
  {names} overlaps another input and is given a symbolic shape in place, which is known only at the call. Compile with
  dynamic=False, or pass a clone of it.
metadata op on a view:
  {names}: a metadata op ({operator}) changes the shape or strides in place, and the same memory is written or read
  afterwards with gradients. Autograd then regenerates the grad_fn of every tensor that shares the memory, in a way
  that the compiled code cannot reproduce. Use {instead}, which returns a new view.
as_strided in a chain of views:
  a tensor is written through a view made by as_strided, and one of four things makes this write impossible to trace:
  its memory, or a view in the chain, was changed by a metadata op (`t_`, `squeeze_`) before; the tensor requires grad
  and its storage offset is not 0; it requires grad and is not contiguous (since torch 2.15); or the view reaches
  outside of an argument that is itself a view (until torch 2.14). Write before the metadata op, or write to a clone.
stale view:
  autograd rejects how this function uses a view, in the order in which it is traced: {names}. Take the view after the
  write, or run this function in eager.
part that is not a view:
  {names} writes to a tensor, or to a part of it that unsafe_chunk or unsafe_split returned, and the other of the two is
  used or returned afterwards. They share memory, which these operators hide from autograd and from a trace. Use chunk
  or split.
gradient needs an overwritten value:
  this function's gradient cannot be computed, and eager fails too: {names} Write to a clone, or run this function in
  eager if you do not need that gradient.
written before the backward:
  {names} was written after the call of {operator} and before its backward, which needs the old value: one of the
  variables needed for gradient computation has been modified by an inplace operation. Eager raises the same error if
  it saved the same tensor. Write after the backward, or to a clone.
written by a backward:
  {names} is written by the backward of a custom autograd.Function or by a gradient hook. A compiled backward does so
  only if the call has one differentiable result, if no other write or alias of {names} is in the way, and if it runs
  as a whole, without create_graph=True. Write it in the forward or after the backward, or run this part in eager.
written on a stream:
  the function writes {names} on a stream of its own, and the value is copied to it on the caller's stream after the
  graph has run. Write to it outside of the stream's context, or return the value.
second derivative:
  the gradients of {names} cannot be differentiated again: {operator}
result without a gradient:
  some results of {names} received no gradient, and they share an autograd.Function with results that did. Its
  backward would have to be traced again for this case, and that fails: {operator}
hook on an alias:
  {names} has a gradient hook or retains its gradient. The compiled code regenerates this tensor or uses another one
  in its place, so the hook would not receive every gradient. Register the hook outside of the function, on a clone of
  any argument that shares memory with another.
hook on a result:
  {names} has a gradient hook or retains its gradient, and gradients of other results flow through it inside the
  compiled backward, which cannot be split there: {operator}. Compute these results outside of the function.
gradient of a result:
  torch.autograd.grad asks for the gradient of {names}, and the compiled function computes other results from it. That
  gradient stays inside the compiled backward. Compute these results outside of the function.
gradient of a leaf that is reshaped:
  torch.autograd.grad asks for the gradient of {names}, a leaf whose shape the function changes in place before it
  uses it. In eager the gradient has the new shape; here it would have the old one. Use backward(), or the operator
  without the underscore.
hook that depends on the call:
  the function registers a gradient hook on {names}, and {operator}. Every compiled call registers the hook that was
  traced, so it has to be valid for all calls. Let it use only its gradient and values that are the same in every
  call.
leaf that is a view:
  {names} requires grad and is itself a view of a tensor that does not. A view of it is used after a write to its
  memory, or to another view of that tensor; autograd no longer connects the view to {names}. Pass a clone, or take
  the view after the write.
view is resized:
  the function resizes a view, or an input that shares memory with another, to more or other elements than it has.
  Resize the tensor that owns the memory.
resize of a symbolic shape:
  the function resizes a tensor whose sizes are symbolic, by resize_ or an out= of another shape: {names}. Compile
  with dynamic=False, or pass a tensor of the right shape.
resized after a write:
  {names} is written and then resized, to more than its storage can hold or to fewer elements; or it is a view with
  gaps in memory that is resized and written. Resize it before the write, or resize a clone.
requires_grad changes:
  the function turns requires_grad of the input {names} {operator} in place, and it does so more than once, or returns
  a view that was taken before, or another input shares its memory. Set requires_grad before the call.
a new leaf is returned:
  {names} is created inside the function and requires_grad_() is called on it there. If it were returned, it would be
  a leaf that is not connected to the other outputs. Call requires_grad_() on it after the call.
a leaf made inside:
  {names} requires grad after the call, though no input does: it depends on a tensor that the function creates with
  requires_grad. Pass that tensor as an argument, or detach the result.
inference mode inside:
  {names} is a tensor subclass that the function creates under torch.inference_mode(). Enter inference mode around the
  call, or use torch.no_grad() inside.
inference tensor is used:
  a tensor that the function creates under torch.inference_mode() is written, or needed for a gradient, after that
  block: {names}. Eager raises there too. Clone it, or use torch.no_grad() inside.
data is assigned:
  the function assigns {names}.data, and this is not supported where the value is an input, a view or of another
  dtype, or where {names} is a view, has views, is also written, or is needed for a gradient. Assign a clone, or use
  copy_() under torch.no_grad().
data is written after the graph:
  {names} is written in place, a gradient needs its new value, and the function goes on after a graph break with code
  that can write to it through .data or distribute_tensor. Write to it before the break, or use copy_() under
  torch.no_grad().
tensors are swapped:
  the function calls {names}, which exchanges two tensors everywhere they are referenced. Swap them outside of the
  function, or return them in the other order.
old storage is written:
  {names} is given another storage, by set_ or by assigning .data, and the old storage is written as well, which its
  other aliases would see. Write to a clone.
argument is changed:
  {operator} changes what the Python object {names} holds, and a compiled call would not repeat that. Return the new
  value instead; or use aotviz.compile(fn), which changes Python objects as eager does.
tensor is kept:
  {operator} stores a tensor in {names} while it runs, and a compiled call would not repeat that. The stored tensor
  was a FakeTensor of the trace and has been removed again. Create the tensor outside of the function and pass it as
  an argument or register it as a buffer; or use aotviz.compile(fn).
backward inside:
  the function calls backward(), which accumulates into .grad of its inputs or parameters. A compiled call cannot do
  that. Return the result of torch.autograd.grad(...), or use aotviz.compile(fn), which runs that line in Python.
argument with a hook:
  the function calls torch.autograd.grad for {names}, which has a gradient hook or retains its gradient. Eager calls
  that hook inside the function, and a trace does not know it. Remove the hook, or use aotviz.compile(fn), which runs
  that line in Python.
gradient of an argument:
  the function reads or assigns the attribute .grad of {names}, which is not an input of the graph. Pass the gradient
  as another argument; or use aotviz.compile(fn), which makes it an input.
nested tensor inside:
  the function creates a nested tensor with the strided layout, which cannot be traced. A TransformerEncoder in
  evaluation mode creates one from its padding mask (switch that off with enable_nested_tensor=False), and so does
  attention over jagged tensors on a CPU.
value of a tensor:
  the program asks for the value {names}{operator}, or for a shape that depends on it. The value is not known while
  tracing. Use torch.where, or torch.cond for a choice; put a line that only saves work under `if not
  torch.compiler.is_compiling()`; or use aotviz.compile(fn), which runs that line in Python.
storage is resized:
  the function resizes the storage of {names} directly, and a compiled call would not repeat that. Resize it before or
  after the call, or call resize_() on the tensor that owns it.
storage is an argument:
  the function passes a storage to an operator: {names}. A trace records operations on tensors, not on storages. Pass
  the tensor.
NumPy inside:
  the function passes a tensor to NumPy: {names}. NumPy calls cannot be traced. Use torch's own functions, or
  aotviz.compile(fn), which runs such a line in Python.
random state inside:
  the function calls {names}. A trace draws no random numbers, so a compiled call would not reproduce the random
  state. Seed before the call; or use aotviz.compile(fn), which runs that line in Python.
mode is changed:
  the function changes {names} and does not restore what was set before. A compiled call would not repeat that. Change
  it before the call, or use a `with` block inside.
state of a tensor:
  the function reads `{operator}` of {names}, or of a view of it. Its value can differ from call to call, and no guard
  checks it. Read it before the call and pass it as an argument; or use aotviz.compile(fn).
address of a tensor:
  the function asks for a tensor's address in memory: {names}. Tensors have no address while tracing. Ask for it
  outside of the function, or run this function in eager.
write through a conjugate:
  a tensor is written through z.conj(), and read or written through z.real, z.imag or view_as_real: {names}. A trace
  treats the conjugate as a view without memory of its own. Write to z itself, or to a clone.
overlapping write:
  the function writes, by {names}, to a tensor in which several elements share one place in memory, or to memory that
  the same operator reads. The result depends on the order in which eager writes. Write to a clone.
tensor class is not traced:
  input {names} is a {operator}, whose {instead} changes what torch's functions do, and the compiled code would not
  call it. Pass a plain tensor, give the class __tensor_flatten__ and __tensor_unflatten__, or use aotviz.compile(fn).
trace inside:
  {names} traces a part of the program, as torch.func.linearize and make_fx do. Inside the trace of the whole, that
  inner trace fails, or gives FakeTensors, which a compiled call would return as they are. Trace that part before the
  call; or use aotviz.compile(fn), which runs such a line in Python.
sparse tensor inside:
  the function creates a tensor without strides: {names}. Only strided tensors can be traced. Run this function in
  eager; or use aotviz.compile(fn), which runs such a line in Python.
logarithm of a symbolic float:
  a gradient needs the logarithm of a Python float that changes from call to call, which torch cannot trace: {names}.
  Pass a tensor instead of the float.
tensor of a transform:
  input {names} was made inside a transform of torch.func (grad, vjp, vmap, jvp), and has no memory of its own. Compile
  the function around the transform, or run this one in eager.
layout is not strided:
  input {names} is a {operator} tensor; aotviz compiles strided tensors only. Pass {instead}, or run this function in
  eager.
tensor is not an argument:
  {names} uses {operator} without taking it as an argument, so aotviz cannot trace what happens to it. To fix this,
  {instead}; or use aotviz.compile(fn), which finds such tensors itself.
parameter is replaced:
  the call assigns another tensor to the parameter or buffer {names}. Write into it instead ({instead}), or use
  aotviz.compile(module), which assigns it as eager does.
attribute is assigned:
  {operator} assigns a tensor to {names} while it runs, and a compiled call would not repeat that. Return the tensor,
  or register a buffer and write into it (self.state.copy_(...)); or use aotviz.compile(module).
lazy module:
  {names} of {operator} has no shape until the first call. Call the module once before you compile it.
distributed module:
  {names} is a {operator}, which prepares communication in Python before each call; a compiled call would skip that.
  Wrap the compiled module instead: {operator}(aotviz.compile(module)); or use torch.compile(module,
  backend="aotviz").
functionalization is switched off:
  disable_functionalization=True: aotviz always functionalizes what it traces. Leave this argument out.
script object without a fake class:
  input {names} is a script object of class {operator}, which has no fake class to trace with. Register one with
  torch._library.register_fake_class("{operator}"), or run this function in eager.
side effect in a higher-order operator:
  a call with side effects (print, a method of a script object, an operator registered as effectful) is inside a
  function that is passed to cond, scan, map, while_loop or nested_compile_region. aotviz keeps the order of side
  effects only in the outermost graph. Move the call out of that function, or run it in eager.
generator before torch 2.13:
  the function draws from a torch.Generator of its own, and graphs of torch {names} cannot take one (those of torch
  2.13 can). Use the default generator, or draw the numbers before the call and pass them.
collective inside:
  the function calls a collective of torch.distributed, {names}, that has no functional form, so that a graph cannot
  wait for what it writes (send and recv, and reductions with a factor of their own). Call it outside of the function;
  or use aotviz.compile(fn).
random numbers on several devices:
  torch._functorch.config.functionalize_rng_ops is on, and the call draws random numbers on {names}, each of which has
  its own generator. Draw on one device, or switch functionalize_rng_ops off.
detached alias is written:
  {names} is a detached alias of {operator} and is written with a value that requires grad. Its grad_fn cannot be
  regenerated from {operator}. Return a clone of it, or detach the value before the write.
view of what is written:
  {names} is a view of {operator}: a part of a subclass, or what a custom autograd.Function returned. Its memory is
  written in the same call. The compiled result would be a copy, or its gradient would not pass that function's
  backward. Return or pass a clone of it, or write to a clone.
subclass is not rebuilt:
  a {names} cannot be put together from new inner tensors of the same shapes, as tracing does after a write or a view:
  {names}.__tensor_unflatten__ raised {operator}. If it is a view of another tensor, pass a clone of it.
part of a subclass by itself:
  {names} requires grad, and the function uses it directly instead of as a part of {operator}, so it needs a gradient
  of its own. Pass {names} as another argument, or detach it.
parts of subclasses overlap:
  {names} overlap in memory inside a tensor subclass, and one of them is written. aotviz cannot trace such a write.
  Pass a clone of one of them.
symbolic view of a subclass:
  {names} is a view of {operator}, which is written, and its strides or offset are symbolic. Return a clone of it, or
  compile with dynamic=False.
saved tensor hook writes:
  {names} writes to its argument. Let the hook work on a copy.
saved tensor hook of a subclass:
  {names} takes or returns a {operator}. A hook that is a graph may pack into plain tensors only: return the inner
  tensors, and build the subclass again in the unpack hook.
what_if with tensor subclasses:
  {names} takes tensor subclasses, and what_if cannot partition its graph again. Compile it with the other
  partition_fn instead.
"""
)

_WHERE = "\n\nWhile executing "  # what FX's interpreter puts between a message and the node that it ran
NO_LINE = "a line of it"  # stands for a statement that is in no file of the user's


class Refused(NotImplementedError):
    """aotviz can't compile this call. `reason` is the name of the rule."""

    def __init__(self, reason: str, names: str = "", operator: str = "", instead: str = "") -> None:
        super().__init__(RULES[reason].message(names, operator, instead))
        self.reason = reason


Asked = TypeVar("Asked")
Names = str | tuple[str, ...]  # what a sentence is about: {names}, or ({names}, {operator}, {instead})
# (name of a rule, condition): the condition yields what the sentence is about, once for each place where it holds
Conditions = tuple[tuple[str, Callable[[Asked], Iterable[Names]]], ...]


def refuse(conditions: Conditions[Asked], asked: Asked) -> None:
    """Raise the refusal of the first condition that holds. The lists are in `aotviz/tracing/rules.py`."""
    for reason, finds in conditions:
        for names in finds(asked):
            raise Refused(reason, *((names,) if isinstance(names, str) else names))


def named(error: BaseException) -> BaseException:
    """The same error; but a `CannotTrace`, which torch_private raises, becomes a `Refused`."""
    if not isinstance(error, CannotTrace):
        return error
    names = _statement(error) if error.reason in _BY_STATEMENT else error.names
    refused = Refused(error.reason, names, error.operator, error.instead)
    _, mark, behind = str(error).partition(_WHERE)
    refused.args = (f"{refused}{mark}{behind}",)
    return refused


def in_words(error: BaseException) -> tuple[str, str]:
    """The message of a refusal, and its place in the user's program: "file:line in function", or "".

    FX's interpreter appends to the message the node that it ran, and the user's frames that made this node.
    """
    message, _, behind = str(error).partition(_WHERE)
    frames = re.findall(r'File "(.*)", line (\d+), in (\S+)', behind)
    return message.strip(), "{}:{} in {}".format(*frames[-1]) if frames else ""


def executed(error: BaseException) -> str:
    """The name of the node of a graph that FX's interpreter ran when it met the error; "" if it ran none."""
    found = re.match(r"%(\w+)", str(error).partition(_WHERE)[2])
    return found[1] if found else ""


def briefly(error: BaseException) -> str:
    """An error's type and the first line of its message. To some messages, torch adds a stack of C++."""
    line = str(error).strip().partition("\n")[0].strip()
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def rule_named_in(message: str) -> str:
    """The name of the rule in a message of a refusal; "" in any other message."""
    found = re.search(r'\(Rule "([^"]+)": docs/', message)
    return found[1] if found else ""


class RanInEager(UserWarning):
    """aotviz refused a graph from Dynamo. It runs in eager instead, with the right results but not compiled."""


_SAID = {
    "encountered a mutation on a view chain of length": "as_strided in a chain of views",
    "as_strided_scatter: sizes": "as_strided in a chain of views",
    "as_strided_scatter is currently only": "as_strided in a chain of views",
    "A view was created in": "stale view",  # no_grad mode or inference mode
    "is a view and its base or another view of its base has been modified inplace": "stale view",
    "is a view of a view which was created in": "stale view",
    "is a view and is being modified inplace. This view is the output of a function that returns": "stale view",
    "cannot mutate tensors with frozen storage": "old storage is written",
    "Cannot set version_counter for inference tensor": "inference mode inside",
    "Inplace update to inference tensor outside InferenceMode": "inference tensor is used",
    "Inference tensors cannot be saved for backward": "inference tensor is used",
    "needed for gradient computation has been modified by an inplace operation": "gradient needs an overwritten value",
    "new_fn INTERNAL ASSERT FAILED": "leaf that is a view",
    "Attempted to resize a view tensor to a larger size": "view is resized",
    "Attempted to call resize_() on an invalid python storage": "storage is resized",
    "tried to directly modify sizes for customized tensor": "resize of a symbolic shape",
    "Cannot call storage_offset() on tensor with symbolic sizes": "resize of a symbolic shape",
    "Cannot access data pointer of Tensor": "address of a tensor",
    "the data pointer on an invalid python storage": "address of a tensor",
    "view_as_real doesn't work on unresolved conjugated": "write through a conjugate",
    "argument of type: <class 'torch.storage.": "storage is an argument",
    ".numpy() is not supported for tensor subclasses": "NumPy inside",
    "Cannot backprop through mirrored meta": "backward inside",
    "Cannot access storage of OpaqueTensorImpl": "sparse tensor inside",
    "method directly as native::_fw_primal": "trace inside",
    "NYI log symbolic float": "logarithm of a symbolic float",
    "NestedTensorImpl doesn't support sizes": "nested tensor inside",
    "_nested_tensor_from_tensor_list": "nested tensor inside",
}
_UNNAMED = {"inference mode inside": "a view", "old storage is written": "a tensor", "leaf that is a view": "a leaf"}
_BY_STATEMENT = (
    "resize of a symbolic shape",
    "inference tensor is used",
    "storage is resized",
    "storage is an argument",
    "NumPy inside",
    "sparse tensor inside",
    "address of a tensor",
    "write through a conjugate",
    "trace inside",
)


def line_in(graph: Any) -> Callable[[str], str]:
    """A function that finds the user's line of an operator in a graph, by the operator's name in autograd.

    For "Sigmoid" it returns " at model.py:4 `y.sigmoid()`", or "" if it is not known which node is meant.
    """

    def line_of(operator: str) -> str:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator).lower()
        stacks = [node.meta.get("stack_trace") or "" for node in graph.nodes if f".{name}." in f"{node.target}."]
        frames = [re.findall(r'File "(.*)", line (\d+), in .*\n(.*)', stack)[-1:] for stack in stacks]
        lines = {
            f" at {os.path.basename(file)}:{line} `{code.strip()}`" for [(file, line, code)] in filter(None, frames)
        }
        return lines.pop() if len(lines) == 1 else ""

    return line_of


def overwritten(text: str, line_of: Callable[[str], str]) -> str:
    """What torch says about a value that a gradient needs and that was overwritten, in our words; else "".

    `line_of` is asked for the line of an operator by its name in autograd.

    >>> overwritten("[torch.FloatTensor [3]], which is output 0 of Sigmoid, is at version 1", lambda _: " at a.py:4")
    'it needs the result of Sigmoid at a.py:4, of shape [3], which is written in place afterwards.'

    Before torch 2.13 it is called SigmoidBackward0.
    """
    found = re.search(r"\[torch\.\w+ (\[[^\]]*\])\](?:, which is output \d+ of (\w+))?", text)
    if not found or "version" not in text:
        return ""
    operator = re.sub(r"Backward\d*$", "", found[2] or "")
    whose = f"the result of {operator}{line_of(operator)}" if operator else "a tensor"
    return f"it needs {whose}, of shape {found[1]}, which is written in place afterwards."


def _statement(error: BaseException) -> str:
    """The line of the user's program that raised an error, for a message."""
    lines = [f for f in traceback.extract_tb(error.__traceback__) if not is_library(f.filename)]
    return f"`{lines[-1].line}` in {lines[-1].name}, line {lines[-1].lineno}" if lines else NO_LINE


@contextmanager
def translated(line_of: Callable[[str], str] = lambda _: "") -> Iterator[None]:
    """Turn errors of torch that tracing causes into refusals. `line_of` finds the line of an operator of the trace."""
    try:
        yield
    except CannotTrace as error:
        raise named(error) from error
    except RuntimeError as error:
        text = str(error)
        for said, reason in _SAID.items():
            if said in text:
                names = _UNNAMED.get(reason) or overwritten(text, line_of) or text.strip().splitlines()[0]
                raise Refused(reason, _statement(error) if reason in _BY_STATEMENT else names) from error
        raise
