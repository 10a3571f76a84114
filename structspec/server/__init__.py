"""An HTTP server that speaks OpenAI's API, for one model: `structspec serve`.

`engine` decodes the requests of all clients together, in one loop on one thread; `wire` is what
clients may send and `plan` what it means; `answering` follows a request, `reading` and `replies`
make answers of its tokens; `app` joins all to FastAPI. Schemas are compiled once and kept.

Invariants
- an answer is the one that `structspec.generate` or `call_tools` gives for the same settings and
  seed, whatever else is being answered, up to ties in the rounding of the model's arithmetic;
- a field that is not understood is refused by name, never ignored, unless it cannot matter to the
  answer;
- a client that goes away stops its own request and no other.

Sibling: `structspec.generate` in the same process needs no server.

Importing this package imports neither FastAPI nor torch.
"""

from __future__ import annotations

from structspec.extras import names_at

__all__ = ["Engine", "Settings", "create_app"]

__getattr__ = names_at(__name__, {"Engine": "engine", "Settings": "app", "create_app": "app"})
