"""Corrections to other people's code, one file each, with the version that ends it."""
