"""Front ends: each reads one source language and lowers it to `structspec.ir`.

`jsonschema` (drafts 4 to 2020-12), `regex`, `types` (pydantic models, dataclasses, TypedDicts …).
A front end knows nothing about automata or vocabularies; automata know nothing about a source
language.
"""
