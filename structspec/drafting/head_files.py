"""Draft heads on disk: reading, writing, and refusing what was made for another target.

Owns the folder of a head: a file of tensors by one of the published names, and `config.json` with
the layout, the tapped layers and, for heads of ours, a portrait of their target.

Invariants
- a file is never unpickled beyond its tensors;
- every parameter of a module comes from the file and every tensor of the file goes into one; what
  is missing, unknown or of another shape is named;
- a head that says its target is used with that one only, whatever its precision.

Siblings: `eagle_head` and `medusa_heads` know which tensors their layouts have.

Example::

    tensors, config = read_head(SHIPPED)
    refuse_other(config["target"], model.model, str(SHIPPED))
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from structspec.errors import DraftError, MissingExtra

__all__ = ["SHIPPED", "fill", "portrait", "read_head", "refuse_other", "write_head"]

#: The head that comes with the package, for the default model.
SHIPPED = Path(__file__).parent / "weights" / "smollm2-135m-instruct"

_WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
)


def read_head(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the configuration in a folder; {} where there is no `config.json`.

    Raises `DraftError` if no file of tensors is there or it cannot be read.
    """
    folder = Path(folder)
    for name in _WEIGHTS:
        path = folder / name
        if path.is_file():
            break
    else:
        raise DraftError(f"no draft head in '{folder}': none of {', '.join(_WEIGHTS)} is there")
    try:
        if path.suffix == ".safetensors":
            tensors = _safetensors().load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        config_path = folder / "config.json"
        config = json.loads(config_path.read_text("utf-8")) if config_path.is_file() else {}
    except Exception as error:  # a cut file, another format, a pickle that is not only weights
        raise DraftError(f"cannot read the draft head '{path}': {error}") from error
    return dict(tensors), dict(config)


def write_head(folder: str | Path, tensors: dict[str, Tensor], config: Mapping[str, Any]) -> None:
    """Write `model.safetensors` and `config.json`, and the folder if it is not there."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _safetensors().save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def fill(module: nn.Module, tensors: Mapping[str, Tensor], place: str) -> None:
    """Load tensors into a module; anything missing, unknown or of another shape is refused.

    `place` names the file in the `DraftError`.
    """
    own = dict(module.named_parameters())
    missing, unknown = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    if missing or unknown:
        what = f"lacks {missing[:3]}" if missing else f"has the unknown tensors {unknown[:3]}"
        raise DraftError(f"the head in {place} {what}; its layout is not one that is known here")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != tensors[name].shape:
                raise DraftError(
                    f"the head in {place} was made for another target: {name} is "
                    f"{tuple(tensors[name].shape)}, this target needs {tuple(parameter.shape)}"
                )
            parameter.copy_(tensors[name])


def portrait(network: Any) -> dict[str, Any]:
    """What tells a target from others: its sizes, and a few of its weights."""
    config, layers = network.base_model.config, network.base_model.layers
    weights = [network.get_input_embeddings().weight]
    for layer in (layers[0], layers[-1]):
        weights += [weight for weight in layer.parameters() if weight.dim() == 2][:3]
    values = [w.detach().flatten()[:: max(1, w.numel() // 8)][:8].float().tolist() for w in weights]
    return {
        "hidden_size": config.hidden_size,
        "layers": len(layers),
        "vocab_size": int(network.get_output_embeddings().weight.shape[0]),
        "fingerprint": [round(value, 6) for part in values for value in part],
    }


def refuse_other(expected: Mapping[str, Any], network: Any, place: str) -> None:
    """Raise `DraftError` unless a head was made for this target, in any precision."""
    found = portrait(network)
    for name in ("hidden_size", "layers", "vocab_size"):
        if found[name] != expected[name]:
            raise DraftError(
                f"the head in {place} was trained for {expected['name']}, whose {name} is "
                f"{expected[name]}; this target's is {found[name]}; train one with "
                "`structspec train-draft` or use another draft"
            )
    pairs = zip(found["fingerprint"], expected["fingerprint"], strict=True)
    if any(abs(a - b) > 0.02 * abs(b) + 1e-3 for a, b in pairs):
        raise DraftError(
            f"the head in {place} was trained for {expected['name']}; this target has its sizes "
            "but other weights; train one with `structspec train-draft` or use another draft"
        )


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingExtra("safetensors", "models") from error
    return safetensors.torch
