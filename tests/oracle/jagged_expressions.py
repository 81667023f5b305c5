"""Programs over jagged tensors, one a line: see `expressions.py`."""

from __future__ import annotations

from typing import Any

import torch

PROGRAMS = """
jag(v * 2, o).sin().values().sum()
jag(v * 2, o).values().sin() * w
jag(v, o).values()
jag(v, o)
jag(v * 2, o)
jag(v * 2, o).sin()
jag(v * 2, o).values(), v.sum()
(lambda y: (jag(y, o).values(), y.sum()))(v * 2)
(lambda y: (jag(y, o), y))(v * 2)
(lambda n: (n, n.values()))(jag(v * 2, o))
(lambda n: (n.sin(), n.cos().values()))(jag(v * 2, o))
jag(v * 2, o) * w
jag(v * 2, o) + jag(v, o)
nt * 2
nt.sin().values()
nt.values()
nt.values() * 2
nt.offsets(), nt * 2
nt + nt
nt * w
nt @ m
F.linear(nt, m)
F.layer_norm(nt, (2,))
F.relu(nt).sum()
nt.sum()
nt.mean()
nt.sum(dim=-1)
nt.sum(dim=1)
nt.mean(dim=1)
nt.softmax(dim=-1)
torch.nested.to_padded_tensor(nt, 0.0)
torch.nested.to_padded_tensor(nt, 0.0) * w
nt.to_padded_tensor(0.0).sum(1)
nt.unbind()[0] * 2
[x.sum() for x in nt.unbind()]
nt.unsqueeze(-1)
nt.transpose(1, 2)
nt.transpose(1, 2).contiguous()
nt.transpose(1, 2).values()
nt.reshape(2, -1, 2)
nt.reshape(2, -1, 2, 1)
nt.detach() * w
nt.clone()
nt.to(torch.float64)
nt.to(torch.float64).values()
torch.cat([nt, nt], dim=-1)
torch.stack([nt, nt.sin()], dim=-1)
nt.chunk(2, dim=-1)
nt.split(1, dim=-1)[0] * 2
torch.where(nt > 0.5, nt, nt * 2)
nt.masked_fill(nt > 0.5, 0.0)
torch.zeros_like(nt) + nt
torch.ones_like(nt)
nt * nt.size(0)
nt.view(2, -1, 2)
nt.unflatten(-1, (1, 2))
nt.flatten(2)
nt.squeeze(-1)
nt.clone().mul_(2)
nt.clone().values().mul_(2)
nt.sin().detach()
nt.sin().detach().values() * w
nt.sin().abs().sqrt().exp()
nt.values().view(3, 4)
nt.sin().values().view(3, 4)
(lambda y: (y.values(), y.offsets()))(nt.sin())
(lambda y: (y, y.values(), y))(nt.sin())
(lambda y: (y.values(), y.values()))(nt.sin())
(lambda y: (y.values(), y.values().t()))(jag(v * 2, o))
(lambda y: (y.values()[:2], y.values()[2:]))(jag(v * 2, o))
jag(v, o, jagged_dim=1)
jag(v * 2, o, min_seqlen=2, max_seqlen=4)
jag(v * 2, o, min_seqlen=2, max_seqlen=4).to_padded_tensor(0.0)
jag(v * 2, o).to_padded_tensor(0.0)
jag(v * 2, o).sum(dim=1)
jag(v * 2, offsets=None, lengths=l)
jag(v * 2, o, l).sin()
jag(v * 2, o, l).values() * 2
jag(v * w, o).unbind()
jag(v, nt.offsets()) * nt
jag(nt.values() * 2, nt.offsets()) * nt
jag(nt.sin().values() * 2, nt.offsets())
jag(nt.values(), nt.offsets())
nt.mul_(2)
nt.values().mul_(2)
v.mul_(2), jag(v, o)
jag(v.mul_(2), o)
(jag(v.detach(), o).mul_(2), v * 2)
jag(v * 2, o).values().mul_(3)
jag(v * 2, o).mul_(3)
(lambda y: (jag(y, o).mul_(3), y))(v * 2)
(lambda y: (jag(y, o).values().mul_(3), y))(v * 2)
(lambda y: (y.mul_(3), jag(y, o)))(v * 2)
F.dropout(nt, 0.0)
F.scaled_dot_product_attention(*[jag(v.view(6, 2, 1) * k, o).transpose(1, 2) for k in (1, 2, 3)])
F.embedding(idx, table)
torch.nested.masked_select(v, v > 0.5)
torch.nested.narrow(pad, 1, torch.zeros(2, dtype=torch.int64), l, layout=torch.jagged)
torch.nested.narrow(pad * 2, 1, torch.zeros(2, dtype=torch.int64), l, layout=torch.jagged).sin()
jag(v * 2, o).transpose(1, 2).contiguous().values()
torch.nested.as_nested_tensor([v[:2] * 2, v[2:]], layout=torch.jagged).values() * w
torch.nested.as_nested_tensor([v[:2] * 2, v[2:]], layout=torch.jagged)
torch.autograd.grad(nt.sin().values().sum(), nt)[0]
torch.autograd.grad(jag(v * 2, o).sin().values().sum(), v)[0]
torch.utils.checkpoint.checkpoint(lambda a: jag(a.sin(), o).cos().values(), v, use_reentrant=False)
torch.utils.checkpoint.checkpoint(lambda a: a.sin().cos(), nt, use_reentrant=False)
nt.values().sum() + w.sum()
jag(v * 2, o).shape[0] * v
(jag(v * 2, o) * jag(v, o).sum(-1, keepdim=True)).values()
F.silu(nt) * nt
F.gelu(jag(v @ m, o)).sum(-1)
(jag(v * 2, o) * jag(v, o)).values(), nt.sin()
jag(v * 2, o).sin().values(), jag(v, o).cos().values()
(lambda y: (y.values(), y))(jag(v * 2, o).sin())
(lambda y: (y.values() * w, y.unbind()[1]))(jag(v * 2, o))
jag(v * 2, o, lengths=l).sin().values()
torch.nested.nested_tensor_from_jagged(v.T, o, jagged_dim=2)
F.scaled_dot_product_attention(*[F.linear(jag(v, o), m).unflatten(-1, (2, 1)).transpose(1, 2)] * 3).transpose(1, 2)
nt.sum(1) / nt.offsets().diff().unsqueeze(-1)
nt * torch.rsqrt(nt.pow(2).mean(-1, keepdim=True) + 1e-6) * w
jag(F.embedding(tok, table), o).mean(1)
torch.nested.nested_tensor_from_jagged(nt.values() * w, nt.offsets(), min_seqlen=2, max_seqlen=4).sin()
torch.nested.narrow(nt.to_padded_tensor(0.0) @ m, 1, torch.zeros(2, dtype=torch.int64), l, layout=torch.jagged)
torch.nested.as_nested_tensor([a * 2 for a in nt.unbind()], layout=torch.jagged)
F.mse_loss(nt.values(), v)
nt.softmax(1)
torch.amax(nt, 1)
nt + pad[:, :1]
nt[0]
nt[..., :1]
nt.chunk(2, dim=0)
torch.nested.nested_tensor([v[:2], v[2:]], layout=torch.jagged) * w
nt.detach().requires_grad_() * 2
nt.to(torch.bfloat16).float()
nt * (nt > 0.5)
torch.cat([nt, nt], dim=0)
torch.autograd.grad(nt.sin().sum(), nt, create_graph=True)[0].values()
torch.autograd.grad(jag(v * 2, o).sin().values().sum(), v, create_graph=True)[0] * w
nt.sin().copy_(nt)
(lambda y: (y.values()[0].mul_(2), y)[1])(nt.sin())
(lambda y: (y.values().add_(1), y.cos())[1])(nt.sin())
nt.unbind()[0].mul_(2), nt.sin()
(lambda a, c: jag(a, o) + jag(c, o))(v * 2, v.sin())
jag(v * 2, o) * nt
F.rms_norm(nt, (2,), w)
(lambda q: (q * 2).values() + q.values())(jag(v.sin(), o))
nt.clone().detach_()
nt.unflatten(-1, (2, 1)).values()
nt.unflatten(-1, (2, 1)).transpose(1, 2).values()
nt.unflatten(-1, (2, 1)).values(), nt.values()
nt.unflatten(-1, (2, 1)).values().mul_(2), nt.sin()
(lambda y: (y[:2], y.detach(), y))(nt.view(2, -1, 2).values())
nt.unflatten(-1, (1, 2)).squeeze(2).values().view(3, 4)
(lambda q: (q.mul_(2), q.unflatten(-1, (2, 1)).values())[1])(nt.detach())
(lambda q: (q.unflatten(-1, (2, 1)).values(), q.mul_(2))[0])(ng)
(lambda q: (q.unflatten(-1, (2, 1)), q.mul_(2))[0])(ng)
F.log_softmax(nt, dim=-1)
nt.var(-1, keepdim=True)
nt - nt.mean(1, keepdim=True)
(lambda y: (y.add_(nt), y.values()))(nt.sin())
jag(v[::2], o // 2) * 2
jag(v[:, 0] * 2, o).values()
jag(v, o).to_padded_tensor(-1.0).sum(1) * w
nt.to_padded_tensor(0.0, (2, 5, 2))
torch.where(nt > 0.5, 0.0, nt)
F.embedding(idx, table).sum(1)
[c.sin() for c in nt.chunk(2, -1)]
nt[1].sum() * w
torch.autograd.grad(F.linear(jag(v, o), m).sum(), [v, m])
torch.utils.checkpoint.checkpoint(lambda a: jag(a * 2, o).sum(1), v, use_reentrant=False) * w
torch.nested.as_nested_tensor(pad * 2, layout=torch.jagged).values()
""".strip().splitlines()

SCOPE = {"torch": torch, "F": torch.nn.functional, "jag": torch.nested.nested_tensor_from_jagged}


def inputs() -> dict[str, Any]:
    random = torch.Generator().manual_seed(0)
    rand = lambda *size: torch.rand(*size, generator=random)  # noqa: E731
    rows = [torch.tensor([0, 1]), torch.tensor([2, 3, 4])]
    return {
        "v": rand(6, 2).requires_grad_(),
        "o": torch.tensor([0, 2, 6]),
        "l": torch.tensor([2, 4]),
        "w": rand(2).requires_grad_(),
        "m": rand(2, 2).requires_grad_(),
        "nt": SCOPE["jag"](rand(6, 2), torch.tensor([0, 2, 6])).detach().requires_grad_(),
        "ng": SCOPE["jag"](rand(6, 2), torch.tensor([0, 2, 6])),
        "pad": rand(2, 4, 2).requires_grad_(),
        "table": rand(5, 3).requires_grad_(),
        "tok": torch.tensor([0, 1, 2, 3, 4, 0]),
        "idx": torch.nested.nested_tensor(rows, layout=torch.jagged),
    }
