"""`speculate`: structspec's loop inside transformers' `model.generate`.

    model.generate(**inputs, custom_generate=structspec.decoding.speculate,
                   output_type=Person, draft="auto", max_new_tokens=100)

`generate` prepares ids, masks and its configuration; the decoding is `loop`'s, so texts are
complete, masked, speculative and the same as `structspec.generate` writes for equal prompts,
settings and seeds.

Invariants
- what the model would read besides ids (pictures, embeddings, an encoder's states) is refused by
  name;
- temperature, top-k, top-p, min-p and repetition penalty of the generation config are kept; what
  would change the law and is not known here (other logits processors, stopping criteria, beams) is
  refused by name, never ignored;
- rows come back as `generate` returns them: prompts in front, padded on the right.

transformers does not forward `tokenizer` or `assistant_model` to a callable: the tokenizer is that
of `structspec.load` or `Model.wrap`, or given as `vocab`, and an assistant is given as `draft`.

Cost: that of the loop.

Sibling: `GrammarLogitsProcessor` masks transformers' own decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from structspec.decoding.loop import decode_many
from structspec.decoding.output import Output
from structspec.decoding.progress import Job, row_seed
from structspec.errors import BatchError, SchemaError, UnsupportedFeature, VocabularyError
from structspec.forward.sampling import Sampling
from structspec.kept_grammars import compiled
from structspec.models import Model
from structspec.vocab import Vocabulary

__all__ = ["speculate"]

# What the settings of the generation config become; the loop applies them itself.
_OWN_PROCESSORS = {
    "LogitNormalization",
    "MinPLogitsWarper",
    "RepetitionPenaltyLogitsProcessor",
    "TemperatureLogitsWarper",
    "TopKLogitsWarper",
    "TopPLogitsWarper",
}
_OWN_CRITERIA = {"EosTokenCriteria", "MaxLengthCriteria"}
# What a model would read besides the ids; the loop gives it ids only.
_READ = ("encoder_outputs", "inputs_embeds", "position_ids", "token_type_ids")
# Tensors that say nothing beyond the ids and their mask.
_NOT_READ = {"attention_mask", "cache_position", "logits_to_keep", "next_sequence_length"}


def speculate(
    model: Any,
    input_ids: Tensor,
    logits_processor: Sequence[Any] = (),
    stopping_criteria: Sequence[Any] = (),
    generation_config: Any = None,
    output_type: Any = None,
    vocab: Any = None,
    draft: Any = "auto",
    draft_count: int = 1,
    verifier: str = "block",
    stop: str | bytes | Sequence[str | bytes] = (),
    seed: int | None = None,
    compile_options: dict[str, Any] | None = None,
    **model_kwargs: Any,
) -> Any:
    """The decoding of `model.generate(..., custom_generate=speculate, output_type=...)`.

    Args:
        model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs: from
            transformers. `attention_mask` says which ids of a left-padded row are its prompt.
        output_type: a type, JSON Schema or `Grammar`, or a constraint that is already bound; a list
            holds one for each prompt.
        vocab: a `structspec.Vocabulary` or a tokenizer, where the model's is not known.
        draft, draft_count, verifier, stop: as in `structspec.generate`.
        seed: for reproducible output; None draws one from torch's generator, so that
            `torch.manual_seed` reproduces it.
        compile_options: for `structspec.compile`; spelling and whitespace default to "canonical"
            and "conventional".

    Returns ids [rows, prompt + new], or transformers' output object if `return_dict_in_generate`.

    Raises `UnsupportedFeature` for settings of `generate` that this cannot honour, the errors of
    `structspec.generate`, and `BatchError` if some of several rows failed.
    """
    _check(logits_processor, stopping_criteria, generation_config)
    _check_inputs(model_kwargs)
    if output_type is None:
        raise SchemaError("speculate needs output_type=: a type, a JSON Schema or a grammar")
    target = _model(model, vocab, output_type)
    mask = model_kwargs.get("attention_mask")
    rows = input_ids.tolist()
    if mask is not None:
        keep = mask.bool().tolist()
        rows = [
            [t for t, k in zip(row, kept, strict=True) if k]
            for row, kept in zip(rows, keep, strict=True)
        ]
    per_prompt = max(1, int(generation_config.num_return_sequences or 1))
    listed = isinstance(output_type, list)
    if listed and len(output_type) * per_prompt != len(rows):
        raise ValueError(
            f"output_type holds {len(output_type)} for {len(rows) // per_prompt} prompts; "
            "give one for each"
        )
    sampling = _sampling(generation_config)
    budget = int(generation_config.max_length) - input_ids.shape[1]
    if seed is None:
        seed = int(torch.randint(2**62, ())) if generation_config.do_sample else 0
    jobs = [
        Job(
            ids,
            _constraint(
                target, output_type[i // per_prompt] if listed else output_type, compile_options
            ),
            sampling,
            budget,
            stop,
            row_seed(seed, i // per_prompt, i % per_prompt),
        )
        for i, ids in enumerate(rows)
    ]
    outcomes = decode_many(
        target,
        jobs,
        draft=draft,
        draft_count=draft_count,
        verifier=verifier,
        batch_size=len(jobs),
    )
    if any(isinstance(outcome, Exception) for outcome in outcomes):
        if len(outcomes) == 1:
            raise outcomes[0]  # type: ignore[misc]
        raise BatchError(outcomes)
    return _as_generate(input_ids, outcomes, budget, target, generation_config)


def _check(processors: Sequence[Any], criteria: Sequence[Any], config: Any) -> None:
    for kind, given, known, advice in (
        ("logits processor", processors, _OWN_PROCESSORS, "pass Sampling settings it knows"),
        ("stopping criterion", criteria, _OWN_CRITERIA, "use stop= or max_new_tokens"),
    ):
        for one in given:
            name = type(one).__name__
            if name not in known:
                raise UnsupportedFeature(
                    name, "", f"speculate cannot apply this {kind} to drafts; {advice}"
                )
    if config is None:
        raise ValueError("speculate is called by model.generate, which passes generation_config")
    if (config.num_beams or 1) > 1:
        raise UnsupportedFeature(
            "num_beams", "", "speculate samples or is greedy; use GrammarLogitsProcessor for beams"
        )


def _check_inputs(model_kwargs: dict[str, Any]) -> None:
    for name, value in model_kwargs.items():
        if value is None or name in _NOT_READ:
            continue
        if name == "position_ids" and _usual(value, model_kwargs.get("attention_mask")):
            continue
        if name in _READ or isinstance(value, Tensor):
            raise UnsupportedFeature(
                name,
                "",
                "speculate gives the model ids and nothing else; use GrammarLogitsProcessor, with "
                "which generate decodes by itself",
            )


def _usual(positions: Tensor, mask: Tensor | None) -> bool:
    """Whether the positions are those that count each row's own ids."""
    if mask is None:
        return bool((positions == torch.arange(positions.shape[-1], device=positions.device)).all())
    counted = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return bool(((positions == counted) | (mask == 0)).all()) if positions.dim() == 2 else False


def _sampling(config: Any) -> Sampling:
    penalty = config.repetition_penalty or 1.0
    if not config.do_sample:
        return Sampling(temperature=0.0, repetition_penalty=penalty)
    return Sampling(
        temperature=1.0 if config.temperature is None else config.temperature,
        top_k=config.top_k or None,
        top_p=config.top_p,
        min_p=config.min_p,
        repetition_penalty=penalty,
    )


def _model(network: Any, vocab: Any, output_type: Any) -> Model:
    first = output_type[0] if isinstance(output_type, list) and output_type else output_type
    if isinstance(vocab, Vocabulary):
        return Model.wrap(network, None, name=type(network).__name__, vocab=vocab)
    if vocab is not None:
        return Model.wrap(network, vocab)
    known = Model.known(network)
    if known is not None:
        return known
    if hasattr(first, "vocab"):
        return Model.wrap(network, None, name=type(network).__name__, vocab=first.vocab)
    name = getattr(network.config, "_name_or_path", "")
    try:
        from transformers import AutoTokenizer

        return Model.wrap(network, AutoTokenizer.from_pretrained(name, local_files_only=True))
    except Exception as error:  # anything from OSError to a parse error
        raise VocabularyError(
            "the model's tokenizer is not known here; pass vocab=tokenizer, or load the model "
            "with structspec.load"
        ) from error


def _constraint(target: Model, output_type: Any, options: dict[str, Any] | None) -> Any:
    if hasattr(output_type, "advance") and hasattr(output_type, "mask"):
        return output_type
    return compiled(output_type, options or {}).bind(target.vocab)


def _as_generate(
    input_ids: Tensor,
    outputs: Sequence[Output | Exception],
    budget: int,
    target: Model,
    config: Any,
) -> Any:
    """Prompts and texts in the shape that `generate` returns."""
    ends = target.vocab.eos_ids
    pad = config.pad_token_id if config.pad_token_id is not None else ends[0]
    texts = []
    for output in outputs:
        assert isinstance(output, Output)
        tokens = list(output.tokens)
        if output.finish_reason != "stop_string" and len(tokens) < budget:
            tokens.append(ends[0])
        texts.append(tokens)
    width = max(map(len, texts))
    padded = [tokens + [pad] * (width - len(tokens)) for tokens in texts]
    new = torch.tensor(padded, dtype=input_ids.dtype, device=input_ids.device)
    sequences = torch.cat([input_ids, new.reshape(len(texts), width)], dim=1)
    if not config.return_dict_in_generate:
        return sequences
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    return GenerateDecoderOnlyOutput(sequences=sequences)  # type: ignore[arg-type]
