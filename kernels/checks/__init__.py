"""One corpus for every implementation: inputs, and how their answers are judged.

`tests/kernels` runs it on reference, torch and interpreted Triton; `gpu_check` on a device. A
judge returns a list of complaints, empty if all is well, and compares as `verification` demands:
numbers to a tolerance, decisions only where no uniform lies within it of a threshold.
"""
