"""Training on several ranks, processes of this machine that talk by gloo: compiled by aotviz, and in eager."""
