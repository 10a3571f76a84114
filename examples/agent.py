"""An agent that looks things up in a SQLite database and writes files, with the default model.

    python examples/agent.py

A scripted user asks four questions; the model chooses the tools and their arguments, under the
tools' schemas, so every call can be run. The tools really query a database and write to a folder.
Two finished turns stand in front of every question, because a model of 135 million parameters
imitates better than it follows descriptions. Its calls are always valid, but not always the right
ones; each turn says whether they were, and nothing is repaired afterwards.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

import structspec

Product = Literal["lamp", "desk", "novel", "atlas", "kite"]

SYSTEM = "You are a shop assistant. Use the functions to answer."
PRODUCTS = [
    ("lamp", "home", 29.0, 12),
    ("desk", "home", 149.0, 3),
    ("novel", "books", 9.5, 40),
    ("atlas", "books", 35.0, 7),
    ("kite", "toys", 18.0, 0),
]


def make_tools(database: sqlite3.Connection, folder: Path) -> structspec.ToolSet:
    """The tools: two queries, one update, one file."""

    def get_price(product: Product) -> dict[str, Any]:
        """Look up the price of one product.

        Args:
            product: the name of the product
        """
        row = database.execute(
            "SELECT name, price, stock FROM products WHERE name = ?", (product,)
        ).fetchone()
        return dict(row)

    def list_products(
        category: Literal["home", "books", "toys"],
        max_price: Annotated[float, Field(gt=0, le=1000)] = 1000.0,
    ) -> list[dict[str, Any]]:
        """List all products of a category, the cheapest first.

        Args:
            category: the category of the products
            max_price: list only products up to this price
        """
        rows = database.execute(
            "SELECT name, price FROM products WHERE category = ? AND price <= ? ORDER BY price",
            (category, max_price),
        )
        return [dict(row) for row in rows]

    def order_product(
        product: Product, quantity: Annotated[int, Field(ge=1, le=9)] = 1
    ) -> dict[str, Any]:
        """Order a product, which takes it out of the stock.

        Args:
            product: the name of the product
            quantity: how many pieces
        """
        with database:
            changed = database.execute(
                "UPDATE products SET stock = stock - ? WHERE name = ? AND stock >= ?",
                (quantity, product, quantity),
            ).rowcount
        return {"ordered": bool(changed), "product": product, "quantity": quantity * changed}

    def write_note(
        file_name: Annotated[str, Field(pattern=r"^[a-z]{1,12}\.txt$")],
        text: Annotated[str, Field(min_length=1, max_length=60)],
    ) -> dict[str, Any]:
        """Write a note to a text file.

        Args:
            file_name: the name of the file, such as todo.txt
            text: the text of the note
        """
        path = folder / file_name
        path.write_text(text + "\n", encoding="utf-8")
        return {"file": file_name, "bytes": path.stat().st_size}

    return structspec.ToolSet([get_price, list_products, order_product, write_note])


def finished_turn(
    says: str, name: str, arguments: dict[str, Any], result: dict[str, Any]
) -> list[dict[str, Any]]:
    """A question, its call, the result and a closing word, as messages in OpenAI's form."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"example_{name}", "type": "function", "function": function}
    return [
        {"role": "user", "content": says},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)},
        {"role": "assistant", "content": "Done."},
    ]


EXAMPLES = [
    *finished_turn(
        "Order 3 pieces of the product novel.",
        "order_product",
        {"product": "novel", "quantity": 3},
        {"ordered": True, "product": "novel", "quantity": 3},
    ),
    *finished_turn(
        "Write a note to the file plan.txt with the text: open at nine",
        "write_note",
        {"file_name": "plan.txt", "text": "open at nine"},
        {"file": "plan.txt", "bytes": 13},
    ),
]


@dataclass(frozen=True)
class Turn:
    """What the user says, and whether a call is what they wanted."""

    says: str
    wanted: Callable[[str, dict[str, Any]], bool]


TURNS = [
    Turn(
        "What is the price of the lamp?",
        lambda name, args: name == "get_price" and args["product"] == "lamp",
    ),
    Turn(
        "List the products of the category books.",
        lambda name, args: name == "list_products" and args["category"] == "books",
    ),
    Turn(
        "Order 2 pieces of the product atlas.",
        lambda name, args: name == "order_product" and args == {"product": "atlas", "quantity": 2},
    ),
    Turn(
        "Write a note to the file notes.txt with the text: call the supplier",
        lambda name, args: (
            name == "write_note"
            and args["file_name"] == "notes.txt"
            and "call the supplier" in args["text"].lower()
        ),
    ),
]


def main() -> int:
    """Run the conversation; exit code 1 if a call could not be run."""
    started = time.perf_counter()
    model = structspec.load()
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.execute("CREATE TABLE products (name TEXT, category TEXT, price REAL, stock INTEGER)")
    database.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", PRODUCTS)
    right = failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tools = make_tools(database, folder)
        for turn in TURNS:
            print(f"user   {turn.says}")
            # each question by itself: a model of this size repeats earlier calls otherwise
            messages = [
                {"role": "system", "content": SYSTEM},
                *EXAMPLES,
                {"role": "user", "content": turn.says},
            ]
            calls = structspec.call_tools(
                model, messages, tools, "required", parallel=False, max_tokens=90, temperature=0
            )
            for call in calls:
                print(f"model  {call.name}({call.raw})")
                try:
                    print(f"tool   {tools[call.name].run(call.arguments)}")
                except structspec.StructspecError as error:
                    failed += 1
                    print(f"tool   failed: {error}")
            good = any(turn.wanted(call.name, dict(call.arguments)) for call in calls)
            right += good
            print(f"       {'as asked' if good else 'not what was asked'}\n")
        stock = {row["name"]: row["stock"] for row in database.execute("SELECT * FROM products")}
        files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
        print(f"stock  {stock}\nfiles  {files}")
    print(
        f"\n{len(TURNS)} turns, every call ran: {'no' if failed else 'yes'}; "
        f"as asked: {right} of {len(TURNS)}; {time.perf_counter() - started:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
