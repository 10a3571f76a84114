"""Machine code of the kernels: decorators, the cache on disk, and filling it ahead of time.

`kernel` decorates; `ready.ensure` is called before the first kernel of a process runs and, if most
machine code is missing, has it made by several processes at once (`crew`, `worker`). What there is
to make is listed in `catalogue.json`.

Sibling: `machine_code.linking`, kernels that call each other by symbol.
"""
