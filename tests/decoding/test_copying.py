"""Candidates of copying, and a head's law with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from structspec.drafting.copying import KINDS, STARTING, Copy, CopyIndex
from structspec.drafting.eagle_head import EagleHead
from structspec.vocab import Vocabulary

WORDS = [b"a", b"b", b"c", b"d", b" San", b"San", b" Francisco", b'"', b" x", b" Fr", b"ancisco"]


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    letters = [bytes([b]) for b in range(32, 127) if bytes([b]) not in WORDS]
    return Vocabulary([*WORDS, *letters, None], [len(WORDS) + len(letters)])


def mask(*tokens: int) -> np.ndarray:
    bits = np.zeros(4, dtype=np.uint32)
    for token in tokens:
        bits[token >> 5] |= np.uint32(1 << (token & 31))
    return bits


def test_the_longest_match_decides_and_the_latest_among_equals(vocab: Vocabulary) -> None:
    index = CopyIndex(vocab, [0, 1, 2, 3, 1, 0, 2, 1])
    # behind "a b": c followed once, two tokens matched
    assert index.look([0, 1], None) == Copy(2, 3 * 1 + 0)
    # behind "d b" only "a"
    assert index.look([3, 1], None) == Copy(0, 3 * 1 + 0)
    # behind "b": a and c followed, unlike; the later one is a
    assert CopyIndex(vocab, [1, 2, 3, 1, 0, 3, 2]).look([1], None) == Copy(0, 2)
    # alike
    assert CopyIndex(vocab, [1, 2, 3, 1, 2, 3, 0]).look([1], None) == Copy(2, 1)


def test_illegal_followers_are_no_candidates(vocab: Vocabulary) -> None:
    index = CopyIndex(vocab, [0, 1, 2, 3, 1, 3, 3])
    assert index.look([0, 1], mask(2)) == Copy(2, 3)
    assert index.look([0, 1], mask(3)) == Copy(3, 0)
    assert index.look([0, 1], mask(7)) is None
    assert CopyIndex(vocab).look([], None) is None
    assert CopyIndex(vocab, [0]).look([], None) is None


def test_a_text_that_is_spelt_with_other_tokens_is_found(vocab: Vocabulary) -> None:
    index = CopyIndex(vocab, [0, 4, 6, 8, 8, 8, 7])
    found = index.look([5], None)  # "San behind a quote, where the text has " San"
    assert found is not None and WORDS[found.token] in (b" Francisco", b" Fr")
    assert found.kind >= 24


def test_a_branch_grows_on_its_own(vocab: Vocabulary) -> None:
    index = CopyIndex(vocab, [0, 1, 2])
    twin = index.branch()
    twin.extend([0, 3])
    assert (len(index), len(twin)) == (3, 5)
    assert index.look([0], None) == Copy(1, 0)
    found = twin.look([0], None)
    assert found is not None and found.token == 3


@pytest.fixture(scope="module")
def head() -> EagleHead:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    network = transformers.LlamaForCausalLM(config).eval()
    made = EagleHead.for_target(network, [1, 3, 5, 9], taps=(1, 2, 2))
    made.copies()
    return made


def test_the_law_is_a_mixture(head: EagleHead) -> None:
    logits = torch.tensor([[0.3, -torch.inf, 1.0, -2.0]]).expand(3, -1)
    tokens, kinds = torch.tensor([5, -1, 2]), torch.tensor([4, -1, 7])
    with torch.no_grad():
        found = head.with_copies(logits, tokens, kinds).softmax(-1)
    plain = logits.softmax(-1)
    share = torch.sigmoid(torch.tensor(STARTING[4]))
    mixed = (1 - share) * plain[0]
    mixed[2] += share
    torch.testing.assert_close(found[0], mixed)
    torch.testing.assert_close(found[1:], plain[1:], msg="no candidate, or one it cannot draft")


def test_the_weights_learn_and_are_kept(head: EagleHead, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert head.copy is not None and len(head.copy) == KINDS
    logits = torch.zeros(1, 4)
    law = head.with_copies(logits, torch.tensor([3]), torch.tensor([2])).softmax(-1)
    law[0, 1].backward()
    assert head.copy.grad is not None and head.copy.grad[2] > 0
    with torch.no_grad():
        head.copy[2] = 1.5
    head.save(tmp_path)
    network = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=20,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    )
    again = EagleHead.load(tmp_path, network)
    assert again.copy is not None and float(again.copy[2].detach()) == 1.5
