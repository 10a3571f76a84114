"""Compiled grammars as bytes: arrays and JSON, no pickle.

Layout: `MAGIC`, the length of a JSON header (uint32, little-endian), the header, the arrays one
after another, the SHA-256 of everything before it. The header names the format version, the fields
of the dataclasses that were written (so that a release with other tables refuses old files instead
of misreading them) and every array's dtype and length.

A file that was cut off or changed fails its checksum, and numbers that would lead kernels out of
their arrays are refused; still, load only what you or your servers wrote, as a forged network may
mean any language.

Example::

    >>> import structspec
    >>> grammar = structspec.compile({"enum": [1, 2]})
    >>> structspec.Grammar.from_bytes(grammar.to_bytes()).accepts("2")
    True
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from structspec.automata.costs import Costs
from structspec.automata.tables import MembersTable, Network
from structspec.errors import SerializationError
from structspec.report import Entry, Report

__all__ = ["FORMAT", "pack", "pack_costs", "unpack", "unpack_costs"]

MAGIC = b"structspec\n"
#: Raised whenever the meaning of a table changes.
FORMAT = 1

_DIGEST = 32
_KINDS: tuple[type[Any], ...] = (Network, MembersTable, Costs)


def pack(network: Network, report: Report, extra: Mapping[str, Any]) -> bytes:
    """A network, its report and some JSON values as bytes."""
    arrays: list[np.ndarray[Any, Any]] = []
    entries = [[e.pointer, e.keyword, e.status, e.note] for e in report]
    content = {"network": _encode(network, arrays), "report": entries, "extra": dict(extra)}
    return _seal("grammar", content, arrays)


def unpack(data: bytes) -> tuple[Network, Report, dict[str, Any]]:
    """What `pack` was given. Raises `SerializationError`."""
    content, arrays = _open("grammar", data)
    try:
        network = _decode(Network, content["network"], arrays)
        report = Report(tuple(Entry(*entry) for entry in content["report"]))
        extra = dict(content["extra"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SerializationError(f"the saved grammar is inconsistent: {error!r}") from error
    _check(network)
    return network, report, extra


def pack_costs(costs: Costs, network: Network, fingerprint: str) -> bytes:
    """The costs of a network under the vocabulary with this fingerprint."""
    arrays: list[np.ndarray[Any, Any]] = []
    content = {
        "costs": _encode(costs, arrays),
        "vocabulary": fingerprint,
        "network": _digest(network),
    }
    return _seal("costs", content, arrays)


def unpack_costs(data: bytes, network: Network, fingerprint: str) -> Costs:
    """What `pack_costs` was given. Raises `SerializationError`, also for another vocabulary."""
    content, arrays = _open("costs", data)
    if content.get("vocabulary") != fingerprint:
        raise SerializationError(
            "the saved constraint belongs to another vocabulary (its fingerprint differs); bind "
            "the grammar again"
        )
    if content.get("network") != _digest(network):
        raise SerializationError("the saved constraint belongs to another grammar; bind it again")
    try:
        costs: Costs = _decode(Costs, content["costs"], arrays)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SerializationError(f"the saved costs are inconsistent: {error!r}") from error
    return costs


def _digest(network: Network) -> str:
    """SHA-256 (hex) of a network."""
    arrays: list[np.ndarray[Any, Any]] = []
    digest = hashlib.sha256(json.dumps(_encode(network, arrays)).encode())
    for array in arrays:
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _shape() -> list[list[str]]:
    """The fields of everything that is written, in order."""
    return [[kind.__name__, *(f.name for f in dataclasses.fields(kind))] for kind in _KINDS]


def _encode(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"a {type(value).__name__} is not part of a compiled grammar")


def _decode(kind: type[Any], content: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    values = {}
    for field in dataclasses.fields(kind):
        value = content[field.name]
        if kind is Network and field.name == "members":
            values[field.name] = _decode(MembersTable, value, arrays)
        else:
            values[field.name] = _value(value, arrays)
    return kind(**values)


def _value(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    return tuple(_value(item, arrays) for item in value["tuple"])


def _seal(kind: str, content: dict[str, Any], arrays: list[np.ndarray[Any, Any]]) -> bytes:
    header = {
        "kind": kind,
        "format": FORMAT,
        "fields": _shape(),
        "arrays": [[array.dtype.newbyteorder("<").str, len(array)] for array in arrays],
        "content": content,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    parts = [MAGIC, len(text).to_bytes(4, "little"), text]
    parts += [a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays]
    body = b"".join(parts)
    return body + hashlib.sha256(body).digest()


def _open(kind: str, data: bytes) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"saved grammars and constraints are bytes, not {type(data).__name__}")
    data = bytes(data)
    if not data.startswith(MAGIC):
        raise SerializationError("these bytes were not written by structspec")
    if len(data) < len(MAGIC) + 4 + _DIGEST:
        raise SerializationError("the saved bytes are cut off")
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise SerializationError("the saved bytes are damaged: their checksum does not match")
    start = len(MAGIC) + 4
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    try:
        header = json.loads(body[start:end])
        version, fields, found = header["format"], header["fields"], header["kind"]
        layout = [(np.dtype(name), int(length)) for name, length in header["arrays"]]
    except (ValueError, KeyError, TypeError) as error:
        raise SerializationError(f"the header of the saved bytes is no header: {error}") from error
    if version != FORMAT or fields != _shape():
        raise SerializationError(
            f"the saved bytes have format {version!r}, or tables of another release; this release "
            f"reads format {FORMAT}: compile the grammar again"
        )
    if found != kind:
        raise SerializationError(f"the saved bytes hold {found!r}, not {kind!r}")
    arrays = []
    for dtype, length in layout:
        size = dtype.itemsize * length
        if dtype.kind not in "iu" or length < 0 or end + size > len(body):
            raise SerializationError("the saved arrays do not fit their header")
        # A copy in the machine's byte order: kernels write to none, but take no read-only arrays.
        array = np.frombuffer(body, dtype, length, end).astype(dtype.newbyteorder("="))
        arrays.append(array)
        end += size
    return header["content"], arrays


# -- numbers that kernels use as places ---------------------------------------------------------


def _check(network: Network) -> None:
    states, rules, edges = network.n_states, network.n_rules, len(network.edge_class)
    if len(network.class_of) != 256 or states < 1 or rules < 1:
        raise SerializationError("the saved network has no states, rules or byte classes")
    for name in ("final", "kind", "data", "rank"):
        if len(getattr(network, name)) != states:
            raise SerializationError(f"network.{name} does not have one entry per state")
    for name, total in (
        ("edge_start", edges),
        ("call_start", len(network.call_rule)),
        ("op_start", len(network.op_kind)),
    ):
        starts = getattr(network, name)
        if len(starts) != states + 1:
            raise SerializationError(f"network.{name} does not have one entry per state")
        _offsets(f"network.{name}", starts, total)
    members = network.members
    lists, loops = members.n_lists, len(network.loop_min)
    if len(members.start) != lists + 1:
        raise SerializationError("network.members.start does not have one entry per list")
    _offsets("network.members.start", members.start, len(members.required))
    for name, values, low, high in (
        ("class_of", network.class_of, 0, network.n_classes),
        ("edge_class", network.edge_class, 0, network.n_classes),
        ("edge_target", network.edge_target, 0, states),
        ("call_rule", network.call_rule, 0, rules),
        ("call_target", network.call_target, 0, states),
        ("op_first", network.op_first, -1, states),
        ("op_second", network.op_second, -1, states),
        ("rule_entry", network.rule_entry, 0, states),
        ("data", network.data, -1, max(lists, loops, 1)),
        ("members.value_state", members.value_state, -1, states),
        ("members.key_state", members.key_state, -1, states),
        ("members.separator_state", members.separator_state, -1, states),
    ):
        if len(values) and (int(values.min()) < low or int(values.max()) >= high):
            raise SerializationError(f"network.{name} points outside of the network")
    for name in ("edge_target", "edge_primary"):
        if len(getattr(network, name)) != edges:
            raise SerializationError(f"network.{name} does not have one entry per edge")


def _offsets(name: str, values: Any, total: int) -> None:
    if values[0] != 0 or values[-1] != total or (np.diff(values) < 0).any():
        raise SerializationError(f"{name} does not divide its {total} entries")
