"""A cache that is passed by, provoked for real: each cache says so, and why."""

from __future__ import annotations

import torch
import torch._inductor.config as inductor

import aotviz


def test_both_caches_say_why_they_were_passed_by():
    torch._dynamo.reset()
    with inductor.patch(post_grad_custom_post_pass=lambda graph: None), aotviz.watch() as recording:
        torch.compile(lambda x: x.sin() + 1)(torch.randn(4))
    lookups = recording.cache_lookups
    assert set(zip(lookups.cache, lookups.outcome, strict=True)) == {("aotautograd", "bypass"), ("fx", "bypass")}
    said = " ".join(recording.cache_misses().why)
    assert "bypassed the FX graph cache" in said
    assert "bypassed the AOTAutograd cache" in said
    assert said.count("a custom pass (`torch._inductor.config.post_grad_custom_post_pass`) has no `uuid()`") == 2
