"""Databases that store codes, each an ``Index``; a package is imported when it is first used."""
