"""The AOT cache: programs that an earlier process compiled, found again by what they were compiled from."""
