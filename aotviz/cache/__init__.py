"""The cache of compiled programs: a key of named ingredients, entries that are data, and the store that keeps them."""
