"""Numeric kernels, one noun a module; installed as `structspec.kernels`.

This file imports nothing: transformers looks for a package called `kernels` and, from the root of
this repository, finds this folder.
"""
