"""Numeric kernels, one noun a module or folder; installed as `structspec.kernels`.

A folder holds one kernel: its public function and formula, `reference`, `in_torch`, `in_triton`.
`logit_rows` and `verdict` are what they take and return, `backend` chooses, `launch` launches,
`checks` judges, `gpu_check` runs on a device. See docs/kernels.md.

This file imports nothing: transformers looks for a package called `kernels` and, from the root of
this repository, finds this folder.
"""
