"""One script for a machine with one NVIDIA GPU: are the kernels right, then how fast are they.

    python -m structspec.kernels.gpu_check --json docs/results/gpu.json
    python kernels/gpu_check.py            # the same without installing anything
    python kernels/gpu_check.py --dry-run  # tiny sizes on the CPU, interpreted: tests this script

Needs torch, numpy and Triton, nothing else; numba (for a constraint's own automaton), transformers
(for the decoding loop with a tiny model), flashinfer and vLLM are used where they are present.
Correctness comes first, against the float64 oracle; a kernel that fails it is not timed. The work
is ordered by importance and stops at `--seconds`; what was left out is named. Exit code: 0 fine, 1
a kernel is wrong, 2 no CUDA device or no Triton.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[], list[str]]

_ROOT = Path(__file__).resolve().parents[1]
#: Compiling goes on in the background of correctness; it gets this share of the time.
_CORRECTNESS_SHARE = 0.55


def _bootstrap() -> None:
    """Make `structspec.kernels` importable from a checkout that is not installed."""
    here = str(Path(__file__).resolve().parent)
    if sys.path and sys.path[0] == here:  # run as a file: its folder must not shadow anything
        sys.path[0] = str(_ROOT)
    import structspec

    if str(_ROOT) not in structspec.__path__ and (_ROOT / "kernels").is_dir():
        try:
            import structspec.kernels.launch
        except ModuleNotFoundError:
            structspec.__path__.append(str(_ROOT))


def _checks(device: Any, tiny: bool, backend: str) -> Iterator[tuple[str, str, Check]]:
    """(kernel, what, a check that returns complaints), most important first."""
    import torch

    from structspec.kernels.checks import (
        cases,
        judge_block,
        judge_decoding,
        judge_layered,
        judge_rows,
    )

    def uniforms(batch: int, tests: int, seed: int) -> torch.Tensor:
        return torch.rand(batch, tests + 1, generator=torch.Generator().manual_seed(seed)).double()

    half = torch.bfloat16
    for dtype in (half,) if tiny else (half, torch.float32, torch.float16):
        rows = cases.row_cases(300, dtype)
        yield ("masked_softmax_stats", f"every kind of row, {dtype}",
               partial(judge_rows.judge_stats, rows, backend, device))  # fmt: skip
    if not tiny:
        large = cases.row_cases(152_064, half)
        yield ("masked_softmax_stats", "V=152064",
               lambda: judge_rows.judge_stats(large, backend, device))  # fmt: skip
    yield (
        "automaton_walk",
        "masks and next states",
        lambda: judge_rows.judge_walk(backend, device),
    )
    yield ("draft_step", "a loop of three places", lambda: judge_rows.judge_loop(backend, device))
    yield ("gather_head", "allowed rows", lambda: judge_rows.judge_head(backend, device))
    length = 2 if tiny else 8
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("mapped bf16", {"mapped": True, "dtype": half}),
        ("padded float32", {}),
        ("one-hot places", {"one_hot": True}),
        ("end tokens", {"eos": True, "masked": False}),
        ("huge float16", {"huge": True, "dtype": torch.float16}),
        ("p = q", {"spread": 0.0}),
    ]
    for name, options in kinds[:1] if tiny else kinds:
        case = cases.verify_case(name, 300, 1, length, seed=3, **options)
        for seed in range(1 if tiny else 4):
            u = uniforms(3, length, seed)
            u[:, :-1] *= (1.0, 0.0, 0.5, 0.2)[seed]
            yield ("block_verify", f"{name}, uniforms {seed}",
                   partial(judge_block.judge_block, case, u, backend, device))  # fmt: skip
    if not tiny:
        wide = cases.verify_case("large", 152_064, 1, 8, batch=3, dtype=half, seed=8)
        yield ("block_verify", "V=152064",
               lambda: judge_block.judge_block(wide, uniforms(3, 8, 1), backend,
               device))  # fmt: skip
    for name, options in kinds[1:2] if tiny else kinds:
        vocab, drafts, places = (40, 2, 1) if tiny else (300, 4, 8)
        case = cases.verify_case(name, vocab, drafts, places, seed=4, **options)
        for rounds in (2,) if tiny or name != "mapped bf16" else (2, 1):
            u = uniforms(3, 1, rounds)
            yield ("layered_verify", f"{name}, {rounds} round(s)",
                   partial(judge_layered.judge_layered, case, u, backend, device,
                           rounds))  # fmt: skip
    if not tiny:
        broad = cases.verify_case("large", 152_064, 4, 4, batch=1, dtype=half, seed=8)
        yield ("layered_verify", "V=152064",
               lambda: judge_layered.judge_layered(
                   broad, uniforms(1, 1, 1), backend, device))  # fmt: skip
        yield ("row_edges", "top-k, top-p, min-p, greedy",
               lambda: judge_rows.judge_edges(backend, device))  # fmt: skip
    yield (
        "automaton_walk",
        "a constraint's masks",
        lambda: judge_rows.judge_constraint(backend, device),
    )
    yield (
        "decoding",
        "texts and drafts of a tiny model",
        lambda: judge_decoding.judge_decoding(backend, device),
    )


def _until_it_fails(
    checks: Iterator[tuple[str, str, Check]],
) -> Iterator[tuple[str, str, Check]]:
    """The checks; where making one raises, one more that raises the same."""
    try:
        yield from checks
    except Exception as error:
        problem = f"the next check cannot be made: {type(error).__name__}: {error}"
        yield "corpus", "making the inputs", lambda: [problem]


def _run_checks(device: Any, tiny: bool, backend: str, deadline: float) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for kernel, what, check in _until_it_fails(_checks(device, tiny, backend)):
        result: dict[str, Any] = {"kernel": kernel, "what": what}
        start = time.monotonic()
        if start > deadline:
            result["outcome"], result["complaints"] = "left out", ["no time"]
        else:
            try:
                complaints = check()
                result["outcome"] = "wrong" if complaints else "right"
            except ImportError as error:
                complaints, result["outcome"] = [str(error)], "left out"
            except Exception as error:  # one broken kernel must not hide the others
                complaints = [f"{type(error).__name__}: {error}"[:2000]]
                result["outcome"] = "failed"
            result["complaints"] = complaints[:5]
        result["seconds"] = round(time.monotonic() - start, 2)
        results.append(result)
        print(f"  {result['outcome']:<9} {kernel}: {what} ({result['seconds']} s)", flush=True)
        for complaint in result["complaints"]:
            if result["outcome"] != "right":
                print(f"            {complaint}", flush=True)
    return results


def _run_timings(setting: Any, bad: set[str], deadline: float) -> list[dict[str, Any]]:
    from structspec.kernels.gpu_benchmarks import BENCHMARKS

    lines: list[dict[str, Any]] = []
    print(f"\n{'kernel':<22}{'median':>10}{'p10':>10}{'p90':>10}{'floor':>10}  what", flush=True)
    for name, benchmark in BENCHMARKS:
        if name in bad or time.monotonic() > deadline:
            reason = "it is wrong" if name in bad else "no time"
            lines.append({"kernel": name, "what": "not timed", "note": reason})
            print(f"{name:<22}not timed: {reason}", flush=True)
            continue
        try:
            for line in benchmark(setting):
                lines.append(line.as_dict())
                _print_line(line)
        except Exception as error:  # the others still count
            note = f"{type(error).__name__}: {error}"[:2000]
            lines.append({"kernel": name, "what": "failed", "note": note})
            print(f"{name:<22}failed: {note}", flush=True)
    return lines


def _print_line(line: Any) -> None:
    if line.timing is None:
        numbers = f"{'-':>10}" * 3
    else:
        numbers = "".join(
            f"{t:>10.1f}" for t in (line.timing.median, line.timing.p10, line.timing.p90)
        )
    floor = f"{line.floor:>10.1f}" if line.floor is not None else f"{'':>10}"
    tail = line.note
    if line.value is not None:
        tail = f"{line.value:.2f} {line.unit}"
        if line.goal is not None:
            tail += f" (goal {line.goal}: {'met' if line.value <= line.goal else 'missed'})"
    print(f"{line.kernel:<22}{numbers}{floor}  {line.what}  {tail}", flush=True)


def _describe(device: Any) -> dict[str, Any]:
    import torch
    import triton

    out: dict[str, Any] = {
        "python": platform.python_version(), "torch": torch.__version__,
        "triton": triton.__version__, "device": str(device),
    }  # fmt: skip
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        out |= {
            "gpu": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1),
            "capability": f"{properties.major}.{properties.minor}", "cuda": torch.version.cuda,
        }  # fmt: skip
    return out


def main(arguments: list[str] | None = None) -> int:
    """Run the check; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m structspec.kernels.gpu_check", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU, interpreted")
    parser.add_argument("--seconds", type=float, default=300.0, help="stop after this time")
    parser.add_argument("--only", choices=["correctness", "timings"], help="one half alone")
    options = parser.parse_args(arguments)
    if options.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    try:
        import torch
    except ImportError:
        print("this check needs torch: pip install 'structspec[models]'", file=sys.stderr)
        return 2
    if not options.dry_run and not torch.cuda.is_available():
        print("no CUDA device is available; use --dry-run to test the script", file=sys.stderr)
        return 2
    try:
        import triton  # noqa: F401
    except ImportError:
        print("this check needs Triton: pip install 'structspec[kernels]'", file=sys.stderr)
        return 2
    try:
        _bootstrap()
        from structspec.kernels.gpu_benchmarks import Setting
        from structspec.kernels.gpu_timing import Timer
    except ImportError as error:
        print(f"this check needs numpy and its own checkout: {error}", file=sys.stderr)
        return 2

    start = time.monotonic()
    device = torch.device("cpu" if options.dry_run else "cuda")
    if options.dry_run:
        from structspec.kernels.checks.interpreter import patch_once

        patch_once()
    torch.manual_seed(0)
    report: dict[str, Any] = {
        "command": "python -m structspec.kernels.gpu_check", "dry_run": options.dry_run,
        "machine": _describe(device), "correctness": [], "timings": [],
    }  # fmt: skip
    print(json.dumps(report["machine"]), flush=True)
    if options.only != "timings":
        share = 1.0 if options.only else _CORRECTNESS_SHARE
        report["correctness"] = _run_checks(
            device, options.dry_run, "triton", start + share * options.seconds
        )
    bad = {r["kernel"] for r in report["correctness"] if r["outcome"] in ("wrong", "failed")}
    if options.only != "correctness":
        timer = Timer(device, repeats=1 if options.dry_run else 60)
        bandwidth = timer.copy_bandwidth(1 << (16 if options.dry_run else 30))
        report["copy_gb_per_s"] = round(bandwidth / 1e3, 1)
        print(f"\ncopy bandwidth: {bandwidth / 1e3:.0f} GB/s; times in µs", flush=True)
        setting = Setting(device, timer, bandwidth, options.dry_run)
        report["timings"] = _run_timings(setting, bad, start + options.seconds)
    report["seconds"] = round(time.monotonic() - start, 1)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{len(report['correctness'])} checks, wrong: {', '.join(sorted(bad)) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
