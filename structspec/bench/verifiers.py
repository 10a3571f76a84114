"""How many drafted tokens each verifier keeps, on committed seeds.

    python -m structspec.bench.verifiers --json docs/results/verifiers.json

Two tables:

- *exact*: tiny random models, every draft and every outcome enumerated by the oracle in float64,
  beside the linear program's optimum (`structspec.verification.optimum`, needs scipy) and the
  largest error of the text's law;
- *sampled*: a synthetic model of a constrained text (256 tokens, drafts of 6, 40 % of the places
  forced), the torch verifiers on the same drafts, with 95 % intervals and milliseconds per call.

Rows of a model are functions of the prefix, drawn from a generator that is seeded with it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from structspec.bench.machine import describe_machine
from structspec.bench.pages import write_report
from structspec.errors import MissingExtra
from structspec.verification import oracle, oracle_baselines, oracle_drafts, oracle_trees
from structspec.verification.optimum import optimal_accepted_of_drafts
from structspec.verification.oracle import Floats, Text
from structspec.verification.oracle_drafts import DraftsLaw

#: (vocabulary, lengths of the drafts) of the exact table
SHAPES: list[tuple[int, list[int]]] = [
    (3, [2, 2]),
    (2, [3, 3]),
    (4, [1, 1]),
    (3, [1, 1, 1]),
    (2, [2, 2, 2]),
]
SEEDS = range(8)
VOCAB, LENGTH, FORCED = 256, 6, 0.4

RULES: dict[str, oracle_baselines.Procedure] = {
    "kseq": oracle_baselines.kseq,
    "recursive": oracle_baselines.recursive,
    "traversal": oracle_baselines.traversal,
    "multipath": oracle_baselines.multipath,
    "multipath, published law": partial(oracle_baselines.multipath, marginal=True),
}


class TinyModel:
    """Random target and draft rows by prefix; the draft holds some of the target."""

    def __init__(self, vocab: int, seed: int) -> None:
        self.vocab, self.seed = vocab, seed
        self.near = float(np.random.default_rng([seed, 9]).random())
        self.rows: dict[tuple[int, Text], Floats] = {}

    def _row(self, what: int, text: Text) -> Floats:
        if (what, text) not in self.rows:
            rng = np.random.default_rng([self.seed, what, *[x + 1 for x in text]])
            self.rows[what, text] = rng.dirichlet(np.full(self.vocab, 0.7))
        return self.rows[what, text]

    def target(self, text: Text) -> Floats:
        """p behind `text`."""
        return self._row(0, text)

    def draft(self, text: Text) -> Floats:
        """q behind `text`."""
        return self.near * self._row(0, text) + (1.0 - self.near) * self._row(1, text)


def exact_table(seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """E[kept] of each rule over all shapes and seeds, as a share of the optimum; see the module."""
    shares: dict[str, list[float]] = {}
    errors: dict[str, float] = {}
    means: dict[str, list[float]] = {}
    for vocab, lengths in SHAPES:
        for seed in seeds:
            m = TinyModel(vocab, seed)
            best = optimal_accepted_of_drafts(m.target, m.draft, lengths)
            plain = oracle.plain_law(m.target, max(lengths) + 1)
            for name, law in _laws().items():
                kept = oracle_drafts.expected_accepted_of_drafts(law, m.target, m.draft, lengths)
                text = oracle_drafts.output_law_of_drafts(
                    law, m.target, m.draft, lengths, max(lengths) + 1
                )
                shares.setdefault(name, []).append(kept / best)
                means.setdefault(name, []).append(kept)
                errors[name] = max(errors.get(name, 0.0), oracle.distance(text, plain))
            for name, kept in _others(m, lengths).items():
                shares.setdefault(name, []).append(kept / best)
                means.setdefault(name, []).append(kept)
            means.setdefault("optimum", []).append(best)
    return {
        name: {
            "kept": float(np.mean(values)),
            "share": float(np.mean(shares[name])) if name in shares else 1.0,
            "worst": float(np.min(shares[name])) if name in shares else 1.0,
            "error": errors.get(name),
        }
        for name, values in sorted(means.items(), key=lambda item: -float(np.mean(item[1])))
    }


def _laws() -> dict[str, DraftsLaw]:
    laws = {name: oracle_baselines.law_of(rule) for name, rule in RULES.items()}
    for rounds in (1, 2, 3):
        laws[f"layered, {rounds} round{'s' if rounds > 1 else ''}"] = partial(
            oracle_drafts.layered_law, rounds=rounds, memo={}
        )
    laws["SpecTr-GBV's formulas (not lossless)"] = oracle_baselines.spectr_gbv_law
    return laws


def _others(m: TinyModel, lengths: Sequence[int]) -> dict[str, float]:
    """Rules for one draft, and recursive rejection without replacement on a tree of K branches."""
    length, count = max(lengths), len(lengths)
    single = {"one draft, block": oracle.block_law, "one draft, token": oracle.token_law}
    kept = {
        name: oracle.expected_accepted(law, m.target, m.draft, length)
        for name, law in single.items()
    }
    widths = [count] + [1] * (length - 1)
    kept["recursive, K branches without replacement"] = oracle_trees.expected_accepted_of_trees(
        oracle_trees.without_replacement_law, m.target, m.draft, widths
    )
    kept["SpecTr-GBV's stated objective"] = oracle_baselines.spectr_gbv_objective(
        m.target, m.draft, count, length
    )
    return kept


def sampled_table(trials: int, drafts: Sequence[int], seed: int = 0) -> list[dict[str, Any]]:
    """Mean kept tokens of the torch verifiers on one set of drafts; see the module."""
    import torch

    from structspec.verification.randomness import Randomness
    from structspec.verification.registry import drafts_verifiers, verifiers

    noise, most = Randomness(seed), max(drafts)
    kept: dict[tuple[str, int], list[int]] = {}
    seconds: dict[tuple[str, int], float] = {}
    for start in range(0, trials, 100):
        requests = list(range(start, min(start + 100, trials)))
        target, draft, tokens = _synthetic(requests, most, seed)
        uniforms = torch.from_numpy(noise.for_drafts(requests, [0] * len(requests), most, LENGTH))
        for name, count in [("token", 1), ("block", 1)] + [
            (name, k) for name in drafts_verifiers for k in drafts
        ]:
            lengths = torch.full((len(requests), count), LENGTH)
            p, q, ids, u = (a[:, :count] for a in (target, draft, tokens, uniforms))
            begun = time.perf_counter()
            if name in verifiers:
                verdict = verifiers[name](p[:, 0], q[:, 0], ids[:, 0], lengths[:, 0], u[:, 0])
            else:
                verdict = drafts_verifiers[name](p, q, ids, lengths, u)
            seconds[name, count] = seconds.get((name, count), 0.0) + time.perf_counter() - begun
            kept.setdefault((name, count), []).extend(verdict.accepted.tolist())
    return [
        {
            "verifier": name,
            "drafts": count,
            "kept": float(np.mean(values)),
            "interval": 1.96 * float(np.std(values)) / math.sqrt(len(values)),
            "ms_per_request": 1e3 * seconds[name, count] / len(values),
        }
        for (name, count), values in sorted(kept.items(), key=lambda item: np.mean(item[1]))
    ]


def _synthetic(requests: Sequence[int], drafts: int, seed: int) -> tuple[Any, Any, Any]:
    """Rows [B, K, L + 1, V], [B, K, L, V] and sampled tokens [B, K, L] of random models."""
    import torch

    shape = (len(requests), drafts, LENGTH + 1, VOCAB)
    target, draft = np.zeros(shape), np.zeros((*shape[:2], LENGTH, VOCAB))
    tokens = np.zeros((*shape[:2], LENGTH), dtype=np.int64)
    for b, request in enumerate(requests):
        model: Callable[[Text], tuple[Floats, Floats]] = partial(_rows, seed, request)
        cache: dict[Text, tuple[Floats, Floats]] = {}
        rng = np.random.default_rng([seed, request, 1])
        for k in range(drafts):
            text: Text = ()
            for i in range(LENGTH + 1):
                if text not in cache:
                    cache[text] = model(text)
                p, q = cache[text]
                target[b, k, i] = p
                if i < LENGTH:
                    draft[b, k, i] = q
                    tokens[b, k, i] = rng.choice(VOCAB, p=q)
                    text = (*text, int(tokens[b, k, i]))
    return torch.from_numpy(target), torch.from_numpy(draft), torch.from_numpy(tokens)


def _rows(seed: int, request: int, text: Text) -> tuple[Floats, Floats]:
    """Target and draft behind `text`: logits 2.5 σ, the draft's off by 1.7 σ; or a forced token."""
    rng = np.random.default_rng([seed, request, 2, *text])
    if rng.random() < FORCED:
        row = np.eye(VOCAB)[rng.integers(VOCAB)]
        return row, row
    logits = 2.5 * rng.standard_normal(VOCAB)
    rows = [np.exp(logits), np.exp(logits + 1.7 * rng.standard_normal(VOCAB))]
    return rows[0] / rows[0].sum(), rows[1] / rows[1].sum()


def main(arguments: list[str] | None = None) -> int:
    """Print both tables as Markdown and write them as JSON if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000, help="sets of drafts to sample")
    parser.add_argument("--drafts", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    try:
        exact = exact_table()
    except MissingExtra as error:
        print(f"{error}", file=sys.stderr)
        return 2
    print("| rule | E[kept] | share of the optimum | worst share | error of the law |")
    print("|---|---|---|---|---|")
    for name, row in exact.items():
        error_text = "" if row["error"] is None else f"{row['error']:.1e}"
        shares = f"{row['share']:.3f} | {row['worst']:.3f}"
        print(f"| {name} | {row['kept']:.3f} | {shares} | {error_text} |")
    sampled = sampled_table(options.trials, options.drafts)
    print("\n| verifier | drafts | kept tokens | ms per request |\n|---|---|---|---|")
    for row in sampled:
        kept = f"{row['kept']:.2f} ± {row['interval']:.2f}"
        print(f"| {row['verifier']} | {row['drafts']} | {kept} | {row['ms_per_request']:.2f} |")
    if options.json:
        report = {
            "command": f"python -m structspec.bench.verifiers --trials {options.trials} --drafts "
            + " ".join(map(str, options.drafts)),
            "machine": describe_machine(),
            "exact": exact,
            "sampled": sampled,
        }
        write_report(options.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
