"""Databases that keep codes, behind the verbs of ``Index``; none is imported until it is opened."""
