"""What the user's Python looked like before a trace, what the trace changed of it, and what was put back."""
