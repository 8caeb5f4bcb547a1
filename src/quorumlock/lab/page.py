"""A story as one page: what is told beside its picture, ours and naive. HTML that needs nothing else."""

from __future__ import annotations

from html import escape

from .drawing import draw
from .page_text import outcome, short
from .story import Story
from .story_facts import Verdict

STYLE = """
:root{color-scheme:light dark;
--paper:#fff;--ink:#1c2733;--faint:#5d6975;--line:#dde2e7;--good:#1a7f4b;--bad:#c2252e}
@media(prefers-color-scheme:dark){:root{--paper:#12171e;--ink:#e6ebf0;--faint:#9ba7b3;--line:#2a333d;--good:#4cc38a;
--bad:#ff6e72}}
body{margin:0 auto;max-width:1560px;padding:24px;background:var(--paper);color:var(--ink);
font:15px/1.5 ui-sans-serif,system-ui,sans-serif}
h1{margin:0 0 4px;font-size:24px}h2{font-size:18px;margin:36px 0 8px}p{max-width:75ch;margin:6px 0}
.faint{color:var(--faint)}.good{color:var(--good)}.bad{color:var(--bad)}
.telling{display:grid;grid-template-columns:minmax(340px,1fr) minmax(480px,1.7fr);gap:24px;align-items:start}
@media(max-width:1000px){.telling{grid-template-columns:1fr}}
svg{width:100%;height:auto;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;font-size:13.5px}td{vertical-align:top;padding:2px 8px 2px 0}
td:first-child{text-align:right;font-variant-numeric:tabular-nums;color:var(--faint);white-space:nowrap}
td:nth-child(2){font-weight:600;white-space:nowrap}
""".strip()


def page(ours: Verdict, naive: Verdict) -> str:
    """The whole page."""
    story = ours.run.story
    note = f'<p class="faint">Note: {escape(story.note)}</p>' if story.note else ""
    body = "\n".join(
        [
            f"<h1>{escape(story.title)}</h1>",
            f'<p class="faint">{escape(story.name)}{_source(story)}</p>',
            f"<p>{escape(story.text)}</p>{note}",
            _telling(naive, "What the story warns about"),
            _telling(ours, "What must be seen instead"),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(story.name)}: {escape(story.title)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _source(story: Story) -> str:
    return f" · {escape(story.told_by)}" if story.told_by else ""


def _telling(verdict: Verdict, heading: str) -> str:
    run = verdict.run
    tone = "bad" if run.naive else "good"
    rows = "\n".join(
        f'<tr><td>{one.at:.2f} s</td><td>{escape(short(one.who))}</td><td class="{_tone(one.tone)}">'
        f"{escape(run.record.shown(one.text))}</td></tr>"
        for one in run.record.lines
    )
    breaks = (
        f'<p class="bad">Assumption broken here: {escape(run.telling.breaks)}.</p>' if run.telling.breaks else ""
    )
    missed = (
        f'<p class="bad">Not as told: expected {escape("; ".join(verdict.unmet))}.</p>' if verdict.unmet else ""
    )
    return (
        f'<h2>{heading}: <span class="{tone}">{escape(run.design.says)}</span></h2>\n'
        f'<div class="telling"><div><table>\n{rows}\n</table>\n'
        f'<p class="{tone}"><b>{outcome(verdict)}</b> {escape(verdict.conclusion)}</p>{breaks}{missed}\n'
        f'<p class="faint">Seen: {escape("; ".join(verdict.seen))}.</p></div>\n{draw(verdict)}</div>'
    )


def _tone(tone: str) -> str:
    return {"fault": "bad", "bad": "bad", "good": "good"}.get(tone, "")
