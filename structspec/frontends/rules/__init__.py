"""What the notations for grammars share: source texts, checks of rules, left recursion, export.

`source` draws carets under mistakes, `left_recursion` rewrites rules that call themselves first,
`productive` finds rules that no text completes, `plain` writes any IR with sequences, choices,
repeats and rules alone, which is what the exporters of `gbnf` and `lark` print.
"""
