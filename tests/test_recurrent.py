"""An LSTM as users train it: its parameters need gradients, and its input does not."""

from __future__ import annotations

import pytest
import torch

import aotviz


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}, {"proj_size": 2}], ids=str
)
def test_an_lstm_whose_input_needs_no_gradient_trains(options):
    torch.manual_seed(0)
    module, x = torch.nn.LSTM(3, 4, batch_first=True, **options), torch.rand(2, 5, 3)
    parameters = list(module.parameters())
    found = []
    for fn in (module, aotviz.compile(module, backend="eager")):
        output, (hidden, cell) = fn(x)
        found.append([output, hidden, cell, *torch.autograd.grad(output.square().sum() + cell.sum(), parameters)])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}], ids=str)
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_a_recurrent_network_drops_out_between_its_layers(kind, options):
    torch.manual_seed(0)
    module, x = kind(3, 4, num_layers=3, dropout=0.5, **options), torch.rand(2, 5, 3)
    parameters = list(module.parameters())
    found = []
    for fn in (module, aotviz.compile(module, backend="eager")):
        torch.manual_seed(1)
        output, _ = fn(x)
        found.append([output, *torch.autograd.grad(output.square().sum(), parameters), torch.get_rng_state()])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the operator is oneDNN's")
def test_an_lstm_in_evaluation_is_one_operator():
    module, x = torch.nn.LSTM(3, 4), torch.rand(2, 5, 3)
    kept = []
    with torch.no_grad():
        compiled = aotviz.aot_module(module, lambda graph, _: kept.append(graph) or graph)
        torch.testing.assert_close(compiled(x)[0], module(x)[0])
    assert [str(n.target) for n in kept[0].graph.nodes].count("aten.mkldnn_rnn_layer.default") == 1
