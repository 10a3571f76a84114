"""Command R7B: an array of numbered calls between action tokens; Command R+: fenced JSON.

Source: the `tool_use` chat templates of c4ai-command-r7b-12-2024 and c4ai-command-r-plus (as in
llama.cpp's models/templates). The markers of R7B are special tokens: reasoning, then either an
action or a response. In R+ the word `Action:` starts the calls.

Examples of replies::

    <|START_ACTION|>[
        {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}
    ]<|END_ACTION|>

    Action:
    ```json
    [{"tool_name": "get_weather", "parameters": {"city": "Paris"}}]
    ```
"""

from __future__ import annotations

from structspec.tools.layout import ArrayLayout, CallFormat, CallObject, Gap, Mark, Reasoning

__all__ = ["COMMAND_R", "COMMAND_R_PLUS"]

COMMAND_R = CallFormat(
    name="command_r",
    title="Command R7B",
    source="chat template (tool_use) of c4ai-command-r7b-12-2024",
    before=(Mark("<|START_ACTION|>"),),
    call=(
        CallObject(
            "tool_name",
            "parameters",
            id_key="tool_call_id",
            id_pattern="^(0|[1-9][0-9]{0,8})$",
            id_required=True,
            id_first=True,
        ),
    ),
    after=(Mark("<|END_ACTION|>"),),
    array=ArrayLayout("[\n    ", ",\n    ", "\n]"),
    answer=((Mark("<|START_RESPONSE|>"),), (Mark("<|END_RESPONSE|>"),)),
    reasoning=Reasoning((Mark("<|START_THINKING|>"),), (Mark("<|END_THINKING|>"), Gap(""))),
    known_by=("<|START_ACTION|>",),
)

COMMAND_R_PLUS = CallFormat(
    name="command_r_plus",
    title="Command R and R+",
    source="chat template (tool_use) of c4ai-command-r-plus",
    before=("Action:", Gap("\n"), "```json", Gap("\n")),
    call=(CallObject("tool_name", "parameters"),),
    after=(Gap("\n"), "```"),
    array=ArrayLayout("[\n    ", ",\n    ", "\n]"),
    known_by=("Action:\\n```json", "Write \\'Action:\\'"),
)
