"""Measurements that anyone can repeat; each writes JSON with hardware and versions beside it.

`machine` says where a figure comes from, `tasks` reads tool-calling tasks, `tool_calls` measures
plain and speculative decoding on them, `verifiers` what each verifier keeps.
"""
