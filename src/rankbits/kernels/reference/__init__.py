"""The definition of each kernel in plain numpy and torch: short, slow, the test of the others."""
