"""A faster interpreter for tests.

Triton's interpreter patches `triton.language` anew at every call of a device function from a
kernel, which takes longer than the function. The launch has patched it already, so inner calls
need not. This touches private names of Triton: where they are gone it does nothing.
"""

from __future__ import annotations

from typing import Any

__all__ = ["patch_once"]


def patch_once() -> bool:
    """Patch each language module once per launch; whether that was possible."""
    try:
        import triton.language as tl
        from triton.runtime import interpreter  # type: ignore[attr-defined,unused-ignore]

        executor, patch = interpreter.GridExecutor, interpreter._patch_lang
    except (ImportError, AttributeError):
        return False
    if getattr(patch, "once", False):
        return True
    patched: set[bool] = set()

    class Nothing:
        def restore(self) -> None:
            """Nothing was changed."""

    def patch_lang(fn: Any) -> Any:
        # `tl.core`'s own functions see another module than kernels do.
        outside = any(value is tl for value in fn.__globals__.values())
        if outside in patched:
            return Nothing()
        patched.add(outside)
        return patch(fn)

    call = executor.__call__

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        patched.clear()
        return call(self, *args, **kwargs)

    patch_lang.once = True  # type: ignore[attr-defined]
    executor.__call__ = run
    interpreter._patch_lang = patch_lang
    return True
