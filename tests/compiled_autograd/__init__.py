"""The whole backward, captured and replayed, beside autograd's engine."""
