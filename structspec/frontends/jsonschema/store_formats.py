"""Writes the file of `stored`: what the builders of `formats` make.

python -m structspec.frontends.jsonschema.store_formats
"""

from __future__ import annotations

import json

from structspec.frontends.jsonschema import formats
from structspec.frontends.jsonschema.stored import BUILDERS, FILE, pack

__all__ = ["main"]


def main() -> None:
    """Write the file."""
    assert BUILDERS, f"{formats.__name__} names them"
    found = {name: pack(build()) for name, build in sorted(BUILDERS.items())}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
