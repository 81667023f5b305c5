"""What the first compilation of a process imports, and what torch finds out once of the machine and of itself.

A second and more, which a process that is forked from one that has imported this need not take again. And what Dynamo
does after each compilation for its logs alone.
"""

from __future__ import annotations

import contextlib
import importlib

import torch

from tests.untimed_guards import without_timing_of_guards

IMPORTED = [
    "setuptools",  # how Inductor finds the flags of Python's own extensions
    "torch._dynamo.backends.inductor",
    "torch._dynamo.debug_utils",
    "torch._dynamo.repro.after_dynamo",
    "torch._dynamo.dce_extra_outputs",
    "torch._export.db.logging",
    "torch._export.passes._node_metadata_hook",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops.passes.inline_invoke_subgraph",
    "torch._inductor.codecache",
    "torch._inductor.codegen.cpp_wrapper_cpu",
    "torch._inductor.compile_fx",
    "torch._inductor.compiler_bisector",
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad",
    "torch._inductor.lowering",
    "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental._attention",
    "torch.export._trace",
    "torch.fx.experimental.validator",
    "torch.nn.attention.flex_attention",
    "torch.utils.cpp_extension",
]

for name in IMPORTED:
    with contextlib.suppress(ImportError):  # another release of torch may have it elsewhere
        importlib.import_module(name)

torch._dynamo.list_backends(None)
torch.overrides.get_overridable_functions()
torch._inductor.codecache.torch_key()
torch._inductor.codegen.common.init_backend_registration()
torch._inductor.cpu_vec_isa.valid_vec_isa_list()
without_timing_of_guards()
