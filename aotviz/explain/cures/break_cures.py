"""What to do about graph breaks and restarts of Dynamo."""

from __future__ import annotations

import warnings

from aotviz.explain.cures.registry import Cure

BRANCH = Cure(
    "branch on a tensor's value",
    "Compute both sides and choose with `torch.where`, use `torch.cond`, or branch outside the compiled function.",
)
NUMPY_FLAG = Cure(
    "flag of NumPy",
    "Dynamo takes a value of NumPy for a tensor. Pass `bool({name})`: each side of the branch is a program, and both "
    "are kept.",
)
NESTED = Cure(
    "strided nested tensor",
    "Make the nested tensor with `layout=torch.jagged`, or call this outside the compiled function.",
)
ITERATED = Cure("generator as an argument", "Pass a list in place of the generator: `list(...)`.")
COMPARED = Cure(
    "comparison of whole tensors",
    "Keep the answer in a tensor, `(x == y).all()` or `torch.isclose(x, y).all()`, and choose with `torch.where` or "
    "`torch.cond`, or compare outside the compiled function.",
)
FORMATTED = Cure(
    "text with a tensor's value",
    "Return the tensor, and make the text of it outside the compiled function.",
)
MODULE_BACKWARD_HOOK = Cure(
    "backward hook of a module",
    "Hook the layer's output in place of the layer, `y.register_hook(hook)` in `forward`, or remove the hook where it "
    "is not needed.",
    anywhere=True,
)
MADE_INSIDE = Cure(
    "parameter made inside",
    "Make the module or parameter once, outside the compiled function, and use that.",
    anywhere=True,
)
SCHEDULED = Cure(
    "step that a scheduler wraps",
    "Nothing is to be done: only that wrapper runs in Python, and the step that it calls is compiled.",
    settled=True,
)
ASSERTION = Cure(
    "assertion with a value in its message",
    "An assertion on a tensor can be part of a graph if its message is a constant text. Leave the value out of the "
    "message, or assert outside the compiled function.",
)
NUMPY_RANDOM = Cure(
    "number that NumPy draws",
    "Draw it outside the compiled function and pass it. If it is only computed with, and is no size or index, you can "
    "draw a tensor inside instead: `torch.rand(())`.",
)
EXPERTS = Cure(
    "loop over the experts of a model",
    "The library loops over those experts that a token was sent to, and their number depends on data. Choose an "
    'implementation without that loop: `model.set_experts_implementation("batched_mm")` before the first call, or '
    '`from_pretrained(..., experts_implementation="batched_mm")`.',
    anywhere=True,
)
REQUIRES_GRAD = Cure(
    "requires_grad_ inside",
    "Call `requires_grad_()` on the tensor before the call of the compiled function.",
)
AUTOGRAD_OPS = Cure(
    "torch.autograd.grad inside",
    "Set `torch._dynamo.config.trace_autograd_ops = True`, or call `torch.autograd.grad` outside the compiled "
    "function, on its result.",
    of_caller="Set `torch._dynamo.config.trace_autograd_ops = True`.",
    settings={"torch._dynamo.config.trace_autograd_ops": True},
)
TOLIST = Cure("tolist", "Keep the values in tensors, or call `tolist()` outside the compiled function.")
ITEM = Cure(
    "item",
    "Keep the value in a tensor, or set `torch._dynamo.config.capture_scalar_outputs = True`. A loop or a branch that "
    "depends on it stays outside the compiled function.",
    of_caller="Set `torch._dynamo.config.capture_scalar_outputs = True`.",
    settings={"torch._dynamo.config.capture_scalar_outputs": True},
)
WHILE = Cure(
    "loop until a tensor's value is reached",
    "Compile what the loop does, and loop outside the compiled function.",
)
STEPS = Cure(
    "loop whose length is a tensor's value",
    "A loop needs the number while compiling. Pass it to the function as a Python int, where each length is a program, "
    "or compile what the loop calls in place of the loop.",
)
CONSTANT_NEEDED = Cure(
    "symbol where a constant is needed",
    "A size or number that changes became a symbol, and this line needs a constant of Python. Decide it outside the "
    "compiled function, and pass the answer, a bool for example.",
)
SPARSE = Cure(
    "sparse tensor",
    "Work with sparse tensors outside the compiled function, or pass a dense one: `x.to_dense()`.",
)
SUBCLASS = Cure(
    "tensor subclass that torch cannot take apart",
    "If it is a tensor subclass with `__torch_dispatch__`, give it `__tensor_flatten__` and `__tensor_unflatten__`, "
    "which name the tensors that it holds, and a `__repr__` that reads no values, for torch's trace. Otherwise pass "
    "those tensors, or call this outside the compiled function.",
)
GENERATOR = Cure(
    "random generator",
    "Draw outside the compiled function and pass what was drawn, or draw from torch's own generator, which "
    "`torch.manual_seed` seeds before the call.",
)
OUTPUT_SIZE = Cure(
    "output size that depends on data",
    "Set `torch._dynamo.config.capture_dynamic_output_shape_ops = True`, or use an operator of fixed output size: "
    "for a mask, `torch.where`, or multiply by it.",
    of_caller="Set `torch._dynamo.config.capture_dynamic_output_shape_ops = True`.",
    settings={"torch._dynamo.config.capture_dynamic_output_shape_ops": True},
)
PRINT = Cure(
    "print",
    "Print outside the compiled function. If it prints only tensors, numbers and strings, "
    "`torch._dynamo.config.reorderable_logging_functions.add(print)` is enough: it prints after the graph has run.",
    of_caller="`torch._dynamo.config.reorderable_logging_functions.add(print)`: it prints after the graph has run.",
    settings={"torch._dynamo.config.reorderable_logging_functions": {print}},
)
WARNING = Cure(
    "warning",
    "Warn outside the compiled function, or `torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)`, "
    "which warns after the graph has run. Since torch 2.15 that needs a warning without keyword arguments.",
    of_caller="`torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)`: it warns after the graph has "
    "run. Since torch 2.15 that needs a warning without keyword arguments.",
    settings={"torch._dynamo.config.reorderable_logging_functions": {warnings.warn}},
)
LOGGER_ASKED = Cure(
    "question to a logger",
    "Call `{method}` outside of the compiled function, and pass what it returns: as a flag, each side is a program.",
)
LOGGING = Cure(
    "log message",
    "Log outside the compiled function, or leave the message out of it before the first call: "
    "`torch._dynamo.config.ignore_logging_functions.add({method})`.",
    of_caller="If you can do without the message, before the first call: "
    "`torch._dynamo.config.ignore_logging_functions.add({method})`.",
)
DISABLED = Cure("disabled function", "Remove the `disable`, or call that function before or after the compiled one.")
CALLED = Cure("graph_break call", "Remove the `graph_break()` call.")
RAISES = Cure(
    "error of the program itself",
    "Call it in eager, without `torch.compile`. If it raises there too, the error is the program's own: correct what "
    "its message says, or give it an input for which it does not raise, or check the input before the call. If not, "
    "move this line out of the compiled function.",
    of_caller="Call it in eager, without `torch.compile`. If it raises there too, give it an input for which it does "
    "not raise, or check the input before the call.",
)
CONTEXT = Cure("context manager", "Enter it outside the compiled function.")
BUILTIN = Cure("built-in function", "Call it outside the compiled function.")
SIDE_EFFECT = Cure(
    "write out of a checkpointed region",
    "Return the value from what is checkpointed, and assign it outside. Or set "
    "`torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True`: the backward then does not repeat "
    "the assignment, which eager's does.",
    settings={"torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint": True},
)
OUTSIDE = Cure(
    "statement that no graph can hold",
    "Move this line out of the compiled function: do it before the call and pass what it gives, or do it after the "
    "call with what the function returns.",
)
SEEDED = Cure("seed that is set inside", "Set the seed before the call of the compiled function.")
WRITES_OUTSIDE = Cure(
    "write in an autograd.Function",
    "Take this line out of the `autograd.Function`: return the value, or take it in the caller, after the forward or "
    "the backward.",
)
OF_THREAD = Cure(
    "setting that another thread made",
    "A thread of its own makes this call. A setting of torch's that another thread made does not hold in it: make it "
    "in the function that the thread runs.",
)
SKIPPED = Cure(
    "function of a skipped library",
    "Call it outside the compiled function, with the whole loop if it is looped over. If it takes and returns tensors, "
    "you can wrap it as a custom operator (`torch.library.custom_op`).",
)
LIBRARYS_BRANCH = Cure(
    "branch of a library on a tensor's value",
    "It is a line of a library, and reads `{name}`. If that is a setting of the model, choose a value for which the "
    "branch is not reached, such as 0 or None.",
    anywhere=True,
)
NOT_YOURS = Cure(
    "graph break of a library",
    "Nothing is to be done in your program: these lines are a library's. What lies between them is compiled.",
    settled=True,
)
RANDOM_IN_VMAP = Cure(
    "random numbers under vmap",
    'Say whether each sample draws its own numbers: `torch.vmap(..., randomness="different")`, or `"same"`.',
)
BATCH_NORM_IN_VMAP = Cure(
    "BatchNorm under vmap",
    "Before the first call, `torch.func.replace_all_batch_norm_modules_(model)`: BatchNorm then keeps no running "
    "statistics, which samples cannot update apart from each other. Or use `model.eval()`, or `nn.GroupNorm`.",
)
ALIASED_BRANCH = Cure(
    "branch that returns its input",
    "What a branch of `torch.cond`, or the body of another higher-order operator, returns must be new: return "
    "`x.clone()` where it returns an input `x`, or a view of one.",
)
FUNCTION_UNDER_VMAP = Cure(
    "custom autograd.Function under vmap",
    "`ApplyTemplate` is what Dynamo puts in place of your `autograd.Function`, and it has no rule for `vmap`. For a "
    "gradient that is passed straight through, write `x + (f(x) - x).detach()` in place of the Function. Otherwise "
    "make it an operator: `torch.library.custom_op` with `register_autograd` and `register_vmap`.",
)
TRANSFORM = Cure(
    "compiled function inside a transform",
    "Compile the transform, with the function in it: `torch.compile({what}(f))` in place of "
    "`{what}(torch.compile(f))`. Where transforms are nested, compile the outermost.",
)
TORCHS_HINT = Cure("what torch advises", "{hint}")
NO_GRAPH = Cure(
    "library around the module",
    "Compile the module itself before the library wraps it: `DistributedDataParallel(torch.compile(model))`.",
)
LIBRARY_ALONE = Cure(
    "function of a library that torch leaves out",
    "Compile the parts of the model without this: it runs in eager, whatever it is compiled with.",
)
RECURRENT = Cure(
    "recurrent layer",
    "Before the first call, `torch._dynamo.config.allow_rnn = True`: Dynamo then traces these layers, which it calls "
    "experimental.",
    anywhere=True,
    settings={"torch._dynamo.config.allow_rnn": True},
)
NO_TENSORS = Cure("no tensor operation", "Do not compile this function: `torch.compile` only makes its calls slower.")
BACKWARD = Cure(
    "backward inside",
    "Call `backward()` outside the compiled function, on its result.",
)
OF_BACKEND = Cure(
    "error of a backend",
    "This is an error of the backend or of one of its passes, not of the compiled function, which "
    '`torch.compile(..., backend="eager")` runs without it. Correct that line if it is yours.',
)
TRACE_PRINTS = Cure(
    "tensor that torch's trace cannot print",
    "Without the trace this does not happen. To trace it as well, give the tensor's class a `__repr__` that reads no "
    "values.",
)
RESTARTS = Cure("restarts at graph breaks", "Remove those graph breaks: each has a point of its own.")
