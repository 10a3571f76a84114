"""The grammar of chess moves against python-chess, where that is installed.

The package is under the GPL and no dependency of this one: `pip install structspec[test-parsers]`
to run these.
"""

from __future__ import annotations

import io
import random

import pytest

from structspec import grammars
from structspec.sampling import sample

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")
chess = pytest.importorskip("chess", reason="python-chess is not installed: pip install chess")


def played(seed: int, most: int = 120) -> tuple[list[str], str]:
    """A random game: its moves, and its result ("*" if it was broken off)."""
    rng = random.Random(seed)
    board, moves = chess.Board(), []
    while not board.is_game_over() and len(moves) < most:
        move = rng.choice(list(board.legal_moves))
        moves.append(board.san(move))
        board.push(move)
    return moves, board.result()


def numbered(moves: list[str], result: str) -> str:
    pairs = [f"{i // 2 + 1}. {' '.join(moves[i : i + 2])}" for i in range(0, len(moves), 2)]
    return " ".join([*pairs, result])


def check(seeds: range) -> int:
    move, game = grammars.load("chess_san"), grammars.load("chess_san", start="game")
    kinds = set()
    for seed in seeds:
        moves, result = played(seed)
        for text in moves:
            assert move.accepts(text), text
            kinds |= {sign for sign in "NBRQKO=x+#" if sign in text} or {"pawn"}
        text = numbered(moves, result)
        assert game.accepts(text), text
        from chess import pgn

        read = pgn.read_game(io.StringIO(text))
        assert read is not None and not read.errors
        assert len(list(read.mainline_moves())) == len(moves)
    return len(kinds)


def test_every_move_of_random_games_is_accepted_alone_and_in_its_game() -> None:
    assert check(range(25)) >= 9


@pytest.mark.full
def test_every_move_of_many_random_games_is_accepted() -> None:
    assert check(range(1000, 1400)) == 11


def test_every_text_of_the_grammar_is_a_move_to_python_chess() -> None:
    for text in sample(grammars.load("chess_san"), 400, seed=3, max_bytes=12):
        said = text.decode()
        assert chess.SAN_REGEX.match(said) or said.rstrip("+#") in ("O-O", "O-O-O"), said
