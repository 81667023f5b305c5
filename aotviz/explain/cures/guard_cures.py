"""What to do about a recompile: a cure for each kind of guard that fails.

Each text names the user's value, gives the cheapest remedy first, and says so if the recompile is expected.
"""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

ONCE = "Each program is kept and reused, so this happens once for each value."
KEPT = "Otherwise each program is kept and reused."

INFERENCE = Cure(
    "inference tensor",
    "Create the tensor always inside or always outside `torch.inference_mode()`.",
    kept="A second program is kept and reused, so this happens only once.",
)
INFERENCE_MODE = Cure(
    "call in inference mode",
    "`torch.no_grad()` and `torch.inference_mode()` need a program each, and so does a call under neither. Call it "
    "under one of the two everywhere, with tensors that are always made inside, or always outside, of "
    "`torch.inference_mode()`.",
    kept="Both programs are kept and reused, so this happens only once.",
)
MARKS = Cure(
    "marks on some tensors",
    "Call `mark_dynamic`, `maybe_mark_dynamic` or `mark_static` on every such tensor, before the first call.",
)
ATTRIBUTE = Cure(
    "attribute set late", "Set the attribute before the first call, for example in `__init__`, and keep it."
)
BACKEND = Cure(
    "new backend object",
    "Create the backend once and pass the same object to every `torch.compile`; a new lambda or partial "
    "counts as another backend.",
)
SUBCLASS = Cure(
    "metadata of a subclass",
    "Give tensors of this subclass the same metadata in each call, or keep it out of what the subclass guards on.",
)
SAVED_HOOKS = Cure(
    "saved-tensor hooks",
    "Use `torch.autograd.graph.saved_tensors_hooks` around every call of the function, or around no call.",
)
SYMBOLIC = Cure(
    "branch on a size",
    "A branch on the size splits the sizes into ranges, and each range needs a program. Move the branch "
    "out of the compiled function, or use `torch.where` or `torch.cond`; if there are only a few ranges, "
    "nothing is wrong. If the bound is 2, size 1 is a special case: pad to at least 2 or use "
    "`mark_unbacked`.",
)
MARKED_RANGE = Cure(
    "size outside of its mark",
    "The size is outside of what `min` and `max` of its `mark_dynamic` allow. Give a `max` that no call exceeds, or "
    "leave both out.",
)
MARKED_BY_MIN = Cure("mark with min alone", "Give `mark_dynamic` a `max` as well as a `min`, or neither.")
OPERATOR_RANGE = Cure(
    "operator that chooses by a size",
    "Nothing is to be done: each range of sizes needs one program, which is kept and reused. Calls with a size of the "
    "other range made this one.",
    settled=True,
)
STRIDE = Cure(
    "memory layout",
    "Pass it always in the same memory layout: `{name}.contiguous()` before the call, or the same "
    "`memory_format` everywhere.",
)
DTYPE = Cure(
    "dtype",
    "If you meant to use one dtype, convert before the call: `{name}.to(torch.{before})`.",
    kept=ONCE,
)
DTYPE_OF_ARRAY = Cure(
    "dtype of an array",
    "If you meant to use one dtype, convert before the call: `{name}.astype('{before}')`.",
    kept=ONCE,
)
RANK = Cure(
    "number of dimensions",
    "Give `{name}` the same number of dimensions in each call, for example with `unsqueeze` or `reshape` "
    "before the call. The number of dimensions cannot be dynamic.",
)
REQUIRES_GRAD = Cure(
    "requires_grad",
    "Decide once whether `{name}` requires grad: freeze or unfreeze it before the first call, and "
    "`detach()` what needs no gradient.",
    kept=ONCE,
)
DIFFERENTIATED = Cure(
    "requires_grad of an input of what is trained",
    "If its gradient is differentiated again (`create_graph=True`, as for a gradient penalty), make this call without "
    "`torch.compile`, since a compiled backward cannot be differentiated. Otherwise decide once whether `{name}` "
    "requires grad: freeze or unfreeze it before the first call, and `detach()` what needs no gradient.",
    kept=ONCE,
)
DEVICE = Cure("device", "If you meant to use one device, move it before the call: `{name}.to('{before}')`.", kept=ONCE)
FROZEN = Cure(
    "parameter frozen late",
    "Freeze or unfreeze the parameters before the first call: each set of frozen parameters needs a program. To train "
    "more layers in each epoch, leave `requires_grad` as it is, give the optimizer only the parameters to be changed, "
    "and clear the gradients of all (`model.zero_grad()`).",
    kept=ONCE,
)
CONVERTED = Cure(
    "module converted late",
    "Convert the module (`half()`, `to(...)`) before the first call, and pass it inputs to match: each dtype or device "
    "needs a program.",
    kept=ONCE,
)
TENSOR_KIND = Cure(
    "kind of tensor",
    "Pass the same kind of tensor as `{name}`; `resolve_conj()` and `resolve_neg()` turn conjugated or "
    "negated views into plain tensors.",
)
TENSOR_OR_NONE = Cure(
    "optional tensor",
    "If `{name}` is optional, two programs are needed. Otherwise pass a neutral tensor, such as "
    "zeros of the usual shape, in place of None.",
    kept="Both programs are kept and reused.",
)
TENSOR_OR_NUMBER = Cure(
    "tensor in some calls, number in others",
    "Pass the same type as `{name}` in each call: `torch.as_tensor({name})` makes a tensor of a number, a list or an "
    "array of NumPy, and the value of a tensor is no part of the program.",
    kept=ONCE,
)
SET_BY_CALL = Cure(
    "attribute that the first call sets",
    "If the first call sets `{name}`, set it before that call: when the object or its configuration is made. If it is "
    "optional, two programs are needed.",
)
FORWARD = Cure(
    "forward that is replaced late",
    "A program is compiled for the `forward` that a module has. Replace or wrap `{name}` before the first call, and "
    "keep it.",
)
PARAMETRIZED = Cure(
    "cache of parametrized weights",
    "Enter `torch.nn.utils.parametrize.cached()` around every call of the function, or around no call.",
    anywhere=True,
    kept=ONCE,
)
TENSOR_CLASS = Cure(
    "tensor subclass in some calls",
    "Pass the same class of tensor in each call: `{name}.as_subclass(torch.Tensor)` makes a plain one.",
    kept=ONCE,
)
MEMBER = Cure(
    "member of an Enum",
    "Each member of an Enum is compiled as a constant, which is fine for a few. Otherwise look up what `{name}` stands "
    "for before the call, and pass that as a tensor.",
)
NEW_CLASS = Cure(
    "class made in a loop",
    "A class that is created again for each call needs a new program each time. Define the class of `{name}` once, "
    "outside the loop or function that creates it.",
)
DUPLICATES = Cure(
    "one tensor passed twice",
    "If {name} should be separate tensors, pass a copy (`x.clone()`).",
    kept=KEPT,
)
MEMORY = Cure(
    "shared memory",
    "Each program is valid for one way in which {name} share memory. Pass views of one storage always or "
    "never, for example by passing a copy (`x.clone()`).",
    kept=KEPT,
)
FUNCTION = Cure(
    "function made in a loop",
    "A function or lambda that is created again for each call needs a new program each time: define "
    "`{name}` once, outside the loop, and pass that.",
    kept="Where there are a few functions, each made once, their programs are kept.",
)
IDENTITY = Cure(
    "new object each time",
    "The program is valid only for this object `{name}`, and each new object costs a compilation. Where there are a "
    "few, such as the members of an Enum, their programs are kept. Otherwise keep one object and change its contents, "
    "or pass the varying value as an argument.",
)
TYPE = Cure("type of an argument", "Always pass the same type, for example `{type}({name})`.", kept=ONCE)
OTHER_CLASS = Cure(
    "argument of several classes",
    "Each class of `{name}` has a program of its own. Compile the function that calls this one, which then has one "
    "program for all of them.",
    kept=ONCE,
)
STATIC = Cure(
    "size that a setting keeps constant",
    "Leave out `dynamic=False`, or the setting `torch._dynamo.config.automatic_dynamic_shapes = False`, or a "
    "`mark_static` of this size: torch then makes a size a symbol when it changes for the first time.",
)
KEYS = Cure(
    "keys of a dictionary",
    "Give `{name}` the same keys in each call, with None or a neutral value for missing entries, or pass "
    "the value itself instead of the dictionary.",
)
STATE_MADE = Cure(
    "state that an optimizer makes",
    "Nothing is to be done: an optimizer makes its state, such as momentum, in the first step, so this happens once.",
    settled=True,
)
HOOK_FILLS = Cure(
    "dictionary that a hook fills",
    "A hook of a module fills a dictionary or list that was empty in the first call. Put all entries in before that "
    "call, such as `{name} = None`, or return the values from `forward`.",
)
KEY_ORDER = Cure(
    "order of a dictionary's keys",
    "Keys are guarded in their order. Give `{name}` the same keys in the same order in each call, for example "
    "`{{key: {name}[key] for key in sorted({name})}}`. If it has other keys in other calls, give it all of them in "
    "each, with a neutral value, such as zeros with a weight of 0, for those that are missing.",
    kept=ONCE,
)
MODULES = Cure(
    "modules added late",
    "A program is compiled for the modules that `{name}` has. Add all of them before the first call, or compile each "
    "of them (`block.compile()`) in place of the whole: equal ones then share a program.",
)
GRADIENT = Cure(
    "gradients that are None in some steps",
    "A step is compiled for the parameters that have a gradient. Give all of them one before the first step, "
    "`p.grad = torch.zeros_like(p)`, and keep it with `optimizer.zero_grad(set_to_none=False)`. Momentum and weight "
    "decay then act on these too.",
    kept=KEPT,
)
MODES = Cure(
    "torch function mode",
    "Enter the mode, such as `torch.device(...)` or one of your own, around every call of the function, or around no "
    "call.",
    kept=ONCE,
)
LENGTH = Cure(
    "length of a list",
    "A loop over `{name}` is unrolled, so each length is a program. Stack the elements into one tensor with a "
    "dynamic dimension, or pad to a fixed length.",
)
FILLED = Cure(
    "dictionary or list that is filled inside",
    "`{name}` has more entries at each call, and each length is a program. If the function fills it, do that outside "
    "of the compiled function: return the value and put it into `{name}` there, or do without `{name}` and compute the "
    "value in each call.",
)
GROWING_LIST = Cure(
    "list of tensors that grows",
    "`{name}` has more entries at each call, and all of them are read, so each length is a program. Keep one tensor in "
    "place of the list: one of fixed size that is filled in place, `past.index_copy_(1, i, new)` with a tensor `i`, "
    "and a mask for what is not filled yet, or one that grows, `past = torch.cat([past, new], 1)`, whose size becomes "
    "a symbol.",
)
PARAMETER_GROUPS = Cure(
    "group added to an optimizer",
    "A step is compiled for the parameter groups that the optimizer has. Add all of them before the first step; a "
    "group can begin with `lr=torch.tensor(0.0)`.",
)
LOOKED_UP = Cure(
    "number by which something is looked up",
    "This line needs the number itself, so each of its values is a program. Where each block of a model has a number "
    "of its own, compile the model in place of its blocks: `torch.compile(model)`. Otherwise look it up before the "
    "call, and pass what was found.",
)
ONLY_LENGTH = Cure(
    "list of which only the length is read",
    "Only the length of `{name}` is read. Pass `len({name})` in its place: a number that changes becomes a symbol, so "
    "other lengths need no new program.",
)
MODULE_HOOKS = Cure(
    "hooks of a module",
    "A program calls the hooks that a module had when it was compiled. Register them before the first call, and keep "
    "them: what a hook does can depend on a tensor that you change. Where hooks are not called, set "
    "`torch._dynamo.config.skip_nnmodule_hook_guards = False`.",
)
DELETED = Cure(
    "deleted object",
    "Keep `{name}` alive as long as you use the compiled function; a new object needs a new compilation.",
)
SIZE = Cure(
    "size",
    "If this size varies, mark it before the first call: `torch._dynamo.mark_dynamic({name}, {index})`, "
    "or `torch.compile(..., dynamic=True)`. If it does not have to vary, pad to one size.",
    of_caller="If this size varies, mark it before the first call: `torch._dynamo.mark_dynamic(tensor, {index})`, "
    "where `tensor` is what you pass as `{name}`, or `torch.compile(..., dynamic=True)`. If it does not have to vary, "
    "pad to one size.",
    settings={"torch._dynamo.config.assume_static_by_default": False},
)
SIZES = Cure(
    "sizes of several tensors",
    "If these sizes vary, mark all of them before the first call: {marks}, or `torch.compile(..., dynamic=True)`. If "
    "one of two sizes that have to be equal is not marked, the call raises. If they do not have to vary, pad to one "
    "size.",
    of_caller="If these sizes vary, mark all of them before the first call: {marks}, where each name is what you pass "
    "by it, or `torch.compile(..., dynamic=True)`. If they do not have to vary, pad to one size.",
    settings={"torch._dynamo.config.assume_static_by_default": False},
)
DUCK = Cure(
    "sizes that are equal by chance",
    "{sizes} were equal in the first call, so torch took them for one size. Mark those that vary before the first "
    "call, such as {marks}, or set `torch.fx.experimental._config.use_duck_shape = False`.",
    settings={"torch.fx.experimental._config.use_duck_shape": False},
)
UNROLLED = Cure(
    "loop over a size",
    "A loop over a `range` is unrolled, so each length is a program, and a long one. Compile what the loop calls in "
    "place of the loop: `step = torch.compile(step)`.",
)
SIZE_OF_PARAMETER = Cure(
    "size of a parameter",
    "`{name}` is a parameter, and torch treats the sizes of parameters as fixed. Accept one program "
    "for each size, or set `torch._dynamo.config.force_parameter_static_shapes = False` and "
    "`torch._dynamo.config.force_nn_module_property_static_shapes = False`.",
    settings={
        "torch._dynamo.config.force_parameter_static_shapes": False,
        "torch._dynamo.config.force_nn_module_property_static_shapes": False,
    },
)
SIZE_OF_BUFFER = Cure(
    "size of a buffer",
    "`{name}` is a buffer, and torch treats the sizes of buffers as fixed. Keep it as a plain attribute, which is "
    "assigned in `__init__` without `register_buffer`, or set "
    "`torch._dynamo.config.force_parameter_static_shapes = False` and "
    "`torch._dynamo.config.force_nn_module_property_static_shapes = False`.",
    settings={
        "torch._dynamo.config.force_parameter_static_shapes": False,
        "torch._dynamo.config.force_nn_module_property_static_shapes": False,
    },
)
SIZE_1 = Cure(
    "size 0 or 1",
    "Sizes 0 and 1 always get a program of their own. Pad dimension {index} of `{name}` to at least 2, or "
    "`torch._dynamo.decorators.mark_unbacked({name}, {index})`.",
)
LAST_BATCH = Cure(
    "batch of 1",
    "Sizes 0 and 1 always get a program of their own. Pad dimension {index} of `{name}` to at least 2, or "
    "drop the odd last batch (`drop_last=True`), or `torch._dynamo.decorators.mark_unbacked({name}, {index})`.",
)
GRAD_MODE = Cure(
    "grad mode",
    "Training and evaluation need one program each. If you did not expect this, check which call runs inside "
    "`torch.no_grad()`.",
    kept="Both are kept and reused.",
)
THREADS = Cure("number of threads", "Call `torch.set_num_threads` before the first compiled call, and not again.")
AUTOCAST = Cure("autocast", "Use `torch.autocast` around every call of the function, or around no call.", kept=ONCE)
SETTING = Cure("global setting", "Set this once, before the first compiled call.", kept=ONCE)
WITHOUT_KV_CACHE = Cure(
    "key-value cache of blocks",
    "The blocks of a model share one code, and the key-value cache gives each block constants of its own. Switch the "
    "cache off where it is not needed, as in training: `model.config.use_cache = False`. Then the blocks share "
    "programs.",
)
GROWING_CACHE = Cure(
    "key-value cache that grows",
    "The key-value cache is empty in the first call, and longer in each later one. A cache of fixed size needs one "
    'program for the prompt and one for all other tokens: `model.generate(..., cache_implementation="static")`.',
)
PROMPT = Cure(
    "prompt and further tokens",
    "The prompt and the tokens after it need one program each. Both are kept and reused, so this happens once.",
    settled=True,
)
ATTRIBUTE_NUMBER = Cure(
    "changing number of an object",
    "`{name}` is an attribute of an object, and each of its values is a constant of its own program. Keep "
    "it in a tensor: `{name} = torch.tensor(...)`, made once, before the first call.",
)
CONSTANT_NUMBER = Cure(
    "number that stays constant",
    "Each value of `{name}` is a constant of a program of its own here. Pass `torch.tensor({name})`, or, if it is "
    "compiled with `dynamic=False`, compile with `dynamic=None`, where a number that changes becomes a symbol.",
)
FIXED_NUMBER = Cure(
    "line that needs the value of a number",
    "A number that changes becomes a symbol, but this line needs its value: a loop over a `range`, for example, is "
    "unrolled, and so is a recursion. Use operations on tensors, such as a slice in place of the loop, or loop outside "
    "of the compiled function.",
)
INDEXED_BY_NUMBER = Cure(
    "list that a number indexes",
    "A number that changes becomes a symbol, but an index of a list needs its value. Make a tensor of the list, once "
    "before the call (`torch.tensor(...)`), and index that.",
)
BOUND_NUMBER = Cure(
    "number of a module that bounds a slice",
    "Numbers on a module are compiled as constants, and a bound of a slice has to stay a number. Set "
    "`torch._dynamo.config.allow_unspec_int_on_nn_module = True`: `{name}` is then a symbol.",
    settings={"torch._dynamo.config.allow_unspec_int_on_nn_module": True},
)
NO_ATTRIBUTE = Cure(
    "attribute that a later change removes",
    "A program is compiled for the parameters that a module has. What replaces them, such as pruning or a "
    "parametrization, comes before the first call.",
    kept=ONCE,
)
CONSTANT_OF_FUNCTION = Cure(
    "number that is passed to an aot_function",
    "`aot_function` has each value of `{name}` as a constant of a program of its own. Pass `torch.tensor({name})`.",
)
DEFAULT_NUMBER = Cure(
    "default of an argument",
    "The default of an argument is compiled as a constant, also where functions that are made in a loop differ in it. "
    "Pass the value in the call: as a tensor, or as a number, which becomes a symbol when it changes.",
)
NUMPY_NUMBER = Cure(
    "number of NumPy whose value a line needs",
    "Dynamo takes a number of NumPy for a tensor, and this line needs its value. Pass `{kind}({name})`: a Python "
    "number that changes becomes a symbol.",
)
NUMBER = Cure(
    "number",
    "Numbers are compiled as constants until they change for the first time. If `{name}` varies and is only computed "
    "with, pass `torch.tensor({name})`. For a branch on it, or as a size or a bound of a slice, it has to stay a "
    "number: each side of a branch needs its own program.",
)
TRAINING = Cure(
    "train and eval", "`train()` and `eval()` need one program each.", kept="Both are kept, so this happens once."
)
FLAG = Cure(
    "flag",
    "A branch on `{name}` needs a program for each side.",
    kept="Both are kept, so this happens once.",
)
GROWN_TABLE = Cure(
    "table that grows with a size",
    "A branch compares a size with `{name}`, and each value of that is a program. If it stands for a table that grows, "
    "make the table once in `__init__`, for the largest size.",
)
RESET = Cure(
    "programs that are forgotten",
    "Leave `torch.compiler.reset()`, or `torch._dynamo.reset()`, out of the loop: torch then keeps its programs.",
)
OPTIMIZER_NUMBER = Cure(
    "number of an optimizer",
    "The numbers of an optimizer are compiled as constants. Make this one a tensor, which is filled in place: "
    "`SGD(parameters, lr=torch.tensor(0.1))` and `group['lr'].fill_(value)`. torch's schedulers do that.",
)
OPTIMIZER_SYMBOL = Cure(
    "number of an optimizer that became a symbol",
    "Nothing has to be done: torch makes `{name}` a symbol when it changes for the first time, so this happens once.",
    settled=True,
)
OPTIMIZER_CONSTANT = Cure(
    "number of an optimizer that stays a constant",
    "Each value of `{name}` is a program, since it cannot be a tensor. Change it seldom, or call `optimizer.step()` "
    "outside what is compiled.",
)
OPTIMIZER_MOMENTUM = Cure(
    "momentum that a scheduler cycles",
    "The numbers of an optimizer are compiled as constants. `OneCycleLR` and `CyclicLR` change this one in each step: "
    "give them `cycle_momentum=False`. If another function sets it, leave it as it is.",
)
MODULE_NUMBER = Cure(
    "number of a module",
    "Numbers on a module are compiled as constants. Keep `{name}` in a tensor (`register_buffer`), or set "
    "`torch._dynamo.config.allow_unspec_int_on_nn_module = True`. If `forward` counts with it and reads it for nothing "
    "else, count outside.",
    settings={"torch._dynamo.config.allow_unspec_int_on_nn_module": True},
)
OWN_NUMBER = Cure(
    "number of each block",
    "Numbers on a module are compiled as constants. If each block of a model has a `{name}` of its own, compile the "
    "model in place of its blocks, `torch.compile(model)`, or make what is computed from the number a tensor, once in "
    "`__init__` (`register_buffer`), and multiply tensors by that: an argument that has to be a number, such as "
    "`scale=`, takes no tensor. If the number changes from call to call, keep it in a tensor and fill that, or, where "
    "it is only used with tensors, set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`.",
    settings={"torch._dynamo.config.allow_unspec_int_on_nn_module": True},
)
NEEDED_NUMBER = Cure(
    "symbol whose value a line needs",
    "A number that changes becomes a symbol, but this line needs its value, as for an argument that has to be a "
    "number. Make what is computed from it a tensor, once before the call, and multiply tensors by that. Where each "
    "block of a model has a number of its own, compile the model in place of its blocks: `torch.compile(model)`.",
)
LIBRARY_NUMBER = Cure(
    "number that torch's own line reads",
    "A line of torch's reads `{name}` as a number, such as the `p` of a dropout, so each of its values is a program. "
    "Set it before the first call, and keep it.",
    anywhere=True,
    kept=ONCE,
)
MODULE_VALUE = Cure(
    "text or other constant of a module",
    "Each value of `{name}` is compiled as a constant, which is fine for a few. Otherwise look up what it selects when "
    "you set it, and keep that in place of the name: another tensor, `layer.weight = weights[name]`, needs no program "
    "of its own.",
    anywhere=True,
)
OTHER_MODULE = Cure(
    "module that is replaced late",
    "A program is compiled for the classes of a model's modules. Replace `{name}` before the first call, and keep it.",
    kept=ONCE,
)
SHARED_LIMIT = Cure(
    "many functions of torch that are compiled one by one",
    "torch counts the functions and modules of its own that are compiled by themselves, such as "
    "`torch.compile(F.gelu)` and `torch.compile(nn.Sequential(...))`, as one function. Compile the function or module "
    "of your own that calls them, or allow more programs before the first call: "
    "`torch._dynamo.config.recompile_limit = 64`.",
    anywhere=True,
    settings={"torch._dynamo.config.recompile_limit": 64},
)
MORE_PROGRAMS = Cure(
    "more values than programs",
    "If there are not many more values than programs, allow a program for each before the first call: "
    "`torch._dynamo.config.recompile_limit = 64`.",
    anywhere=True,
    settings={"torch._dynamo.config.recompile_limit": 64},
)
SYMBOL = Cure(
    "number that became a symbol",
    "Nothing is to be done: `{name}` is a symbol in this program, so other values need no new one.",
    settled=True,
)
COMPUTED_NUMBER = Cure(
    "number of the call that became a symbol",
    "Nothing has to be done: `{name}` is a symbol in this program, so this happens once. If `{name}` is only computed "
    "with, passing `torch.tensor({name})` saves this compilation too; as a size, an index or a bound of a slice it has "
    "to stay a number. Each side of a branch on it needs a program in any case.",
)
GLOBAL_NUMBER = Cure(
    "global number",
    "Globals are compiled as constants. Pass `{name}` as an argument, as a tensor if it changes often.",
)
GLOBAL_VALUE = Cure(
    "global value",
    "What is no tensor and no number is compiled as a constant, as a global and as an argument. Set `{name}` once, or "
    "work out what depends on it outside of the function, and pass that: a number or a tensor.",
    kept=ONCE,
)
VALUE = Cure(
    "other constant",
    "Each value of `{name}` is compiled as a constant. That is fine for a few values; otherwise move the "
    "choice out of the function.",
)
ALSO = Cure("several guards at once", "Those calls fail the {guards} on {names} as well.")
STANCE = Cure(
    "recompiles are errors",
    "If such inputs are meant, call the function with them before recompiles become errors "
    '(`torch.compiler.set_stance("fail_on_recompile")`, or the setting `error_on_recompile`), so that it has a program '
    "for them.",
)
NOT_COMPILED = Cure(
    "nothing compiled",
    "Call the compiled function inside of the watch. `torch.compile(module)` and `module.compile()` compile `forward` "
    "alone: compile another method itself, `module.embed = torch.compile(module.embed)`. `module.compile()` compiles "
    "nothing of a module of torch's own class, such as `nn.Sequential`: `module = torch.compile(module)` does. A "
    "generator, which has `yield` in it, is not compiled: compile what it calls for each element.",
)
