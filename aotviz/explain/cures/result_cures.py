"""What to do where a compiled function computes something else than eager does."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

UNDECLARED = Cure(
    "operator that writes what it does not declare",
    "If `{name}` writes an argument, declare that: `mutates_args={{'average'}}` of `torch.library.custom_op`, with the "
    "argument's name, or `Tensor(a!)` in its schema, and give it another name: the key of torch's caches has no more "
    "of an operator than that. If it only does something else, call it outside the compiled function.",
)
RANDOM = Cure(
    "random numbers of Inductor's",
    "To compare with eager, set `torch._inductor.config.fallback_random = True` before the first call: the compiled "
    "function then draws eager's random numbers.",
    settings={"torch._inductor.config.fallback_random": True},
)
PRECISION = Cure(
    "roundings that Inductor leaves out",
    "To compare with eager, set `torch._inductor.config.emulate_precision_casts = True` before the first call: the "
    "compiled function then rounds where eager does. Or compare with what is computed in float32, which is nearer to "
    "what was compiled.",
    settings={"torch._inductor.config.emulate_precision_casts": True},
)
ORIG_MOD = Cure(
    "checkpoint of a compiled module",
    "`torch.compile(module)` puts `_orig_mod.` before the names. Save and load the state of the module itself: "
    "`module.state_dict()`, `module.load_state_dict(...)`. `module.compile()` compiles in place and changes no names.",
)
DTYPES = Cure(
    "two tensors of different dtypes",
    "Convert one of them to the dtype of the other, for example what is written into a cache: "
    "`keys.to(cache.dtype)`. Under `torch.autocast`, layers return bfloat16 or float16, and a buffer keeps its dtype: "
    "or make it of that dtype.",
)
