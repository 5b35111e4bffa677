"""The definition of each kernel in plain numpy and torch: short and slow, it tests the others."""
