"""What stages hand on: the frozen forms, and the facts in them."""
