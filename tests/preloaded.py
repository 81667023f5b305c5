"""What tests/processes.py imports before it forks: what nearly every program that compiles would import for itself.

torch imports most of this with the first compilation, which costs a program of one line half of its time. Names that
another version of torch lacks are passed over.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil

PACKAGES = ["torch._dynamo.backends", "torch._inductor.fx_passes.serialized_patterns"]  # with all of their modules
MODULES = """
aotviz.comparing.bisecting aotviz.frontends.backend sympy.tensor.tensor
torch._dynamo.dce_extra_outputs torch._dynamo.repro.after_dynamo torch._functorch._aot_autograd.subclass_codegen
torch._higher_order_ops.passes.inline_invoke_subgraph torch._inductor.codegen.cpp_wrapper_gpu
torch._inductor.compile_fx torch._inductor.compiler_bisector torch._inductor.extern_node_serializer
torch._inductor.fx_passes.fuse_attention torch._inductor.fx_passes.mkldnn_fusion torch._inductor.fx_passes.pad_mm
torch._inductor.fx_passes.quantization torch._inductor.hooks torch._inductor.runtime.caching
torch._subclasses.schema_check_mode torch.distributed.tensor.experimental torch.export._trace
torch.fx.experimental.validator
""".split()


def preload() -> None:
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            package = importlib.import_module(name)
            MODULES.extend(f"{name}.{module.name}" for module in pkgutil.iter_modules(package.__path__))
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        from torch._inductor.codegen.common import init_backend_registration

        init_backend_registration()  # imports the code generators of all devices


preload()
gc.set_threshold(10_000, 20, 50)  # as in tests/conftest.py: a forked process inherits it
