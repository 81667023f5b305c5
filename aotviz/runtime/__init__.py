"""What runs on every call: the generated wrapper, the `autograd.Function`, and what they use."""
