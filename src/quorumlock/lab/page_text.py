"""A run as text: who did what, when, in lines of 80 columns."""

from __future__ import annotations

import re
import textwrap

from .naive import DESIGNS
from .story import Story
from .story_facts import Verdict

WIDTH = 80


def tell(verdict: Verdict) -> str:
    """The whole story, and what is to be thought of it."""
    run = verdict.run
    story, record = run.story, run.record
    head = f"{story.name}: {story.title}"
    with_ = f"{run.design.says} · {nodes(run.nodes)} · ttl {story.cast.ttl:g} s"
    parts = [head, with_, "", wrapped(story.text), ""]
    if story.note:
        parts += [wrapped(f"Note: {story.note}"), ""]
    parts += [
        line(one.at, one.who, record.shown(one.text), one.tone) for one in record.lines if one.at <= story.until
    ]
    parts += [
        "",
        wrapped(f"Seen: {'; '.join(verdict.seen)}.", 6),
        wrapped(f"{outcome(verdict)} {verdict.conclusion}"),
    ]
    if run.telling.breaks:
        parts.append(wrapped(f"Assumption broken here: {run.telling.breaks}."))
    if not verdict.shown:
        parts.append(wrapped(f"NOT AS TOLD: expected {'; '.join(verdict.unmet)}."))
    return "\n".join(parts)


def shown_story(story: Story) -> str:
    """What is in the file: who does what, and what must be seen."""
    cast = story.cast
    parts = [
        f"{story.name}: {story.title}",
        *([story.told_by] if story.told_by else []),
        "",
        wrapped(story.text),
        "",
    ]
    parts += [wrapped(f"Note: {story.note}"), ""] if story.note else []
    parts += [
        f"{nodes(cast.nodes)}, clients {', '.join(cast.clients)}, ttl {cast.ttl:g} s, {story.until:g} s in all",
        "",
    ]
    for step in story.steps:
        more = ", ".join(f"{key} {_option(value)}" for key, value in step.options.items())
        because = f" ({step.because})" if step.because else ""
        parts.append(line(step.at, step.who, f"{step.does}{f', {more}' if more else ''}{because}", ""))
    for word, telling in (("With quorumlock", story.ours), ("Naive", story.naive)):
        how = "" if telling.design == "ours" else f" ({DESIGNS[telling.design].says})"
        parts += ["", wrapped(f"{word}{how} must be seen: {'; '.join(one.text for one in telling.expect)}.", 2)]
    return "\n".join(parts)


def _option(value: object) -> str:
    return (
        ", ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def outcome(verdict: Verdict) -> str:
    if not verdict.shown:
        return "?"
    return "FAILS." if verdict.run.naive else "HOLDS."


def nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def line(at: float, who: str, text: str, tone: str) -> str:
    sign = {"fault": "!", "bad": "x", "good": "+"}.get(tone, " ")
    start = f"{at:7.2f} {sign} {short(who):<10} "
    return textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def short(who: str) -> str:
    """Nodes in a row as 1-3."""
    numbers = [int(one) for one in re.findall(r"\d", who)]
    in_a_row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"nodes {numbers[0]}-{numbers[-1]}" if in_a_row else who


def wrapped(text: str, indent: int = 0) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=" " * indent)
