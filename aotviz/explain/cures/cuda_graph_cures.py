"""What to do where CUDA graphs were skipped."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

WRITTEN_INPUT = Cure(
    "CUDA graph of a written input",
    "Return the new value in place of writing the input (`x = x.add(1)`, not `x.add_(1)`), and keep it in the caller.",
)
CPU_TENSOR = Cure(
    "CUDA graph of a CPU tensor",
    "Make this tensor on the GPU (`device=x.device`), or move it there before the call.",
)
CPU_ONLY = Cure(
    "CUDA graph of a program on the CPU",
    "Move the module and its inputs to the GPU, or leave CUDA graphs out: `torch.compile` without "
    '`mode="reduce-overhead"`, and without `triton.cudagraphs` among its options.',
)
