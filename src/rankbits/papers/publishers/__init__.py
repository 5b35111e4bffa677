"""One module a dataset: ``read(root)`` reads the layout in which its publisher gives it out."""
