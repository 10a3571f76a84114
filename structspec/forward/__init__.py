"""A model run over cached rows, and the law read off its logits: what drafts and decoding share.

`rows` and `slots` hold the caches of many sequences, `target` that of one, `warp` the sampling
settings and laws. Below `drafting` and `decoding`, above `models`. Importing this package imports
no torch.
"""
