"""Puts what the tests compare with on the path: the recogniser, and walks beside the automaton."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "automata"))
sys.path.insert(0, str(Path(__file__).parent))
