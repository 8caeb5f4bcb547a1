"""What is said at the end: tables by workload and fault, and for a failure its story and how to replay it."""

from __future__ import annotations

from .faults import FAULTS
from .fuzz import CALM, Row, Summary
from .run import Options, Verdict
from .town import ASSUMPTIONS, MAX_TTL
from .workloads import WORKLOADS

COLUMNS = ("seeds", "granted", "renewed", "lost", "refused", "excused", "failed")
BEFORE, AFTER = 25, 5
"""Lines of a story that are shown around what went wrong."""


def table(title: str, rows: dict[str, Row], order: list[str], *, markdown: bool = False) -> list[str]:
    names = [name for name in order if name in rows]
    cells = [[title, *COLUMNS], *([name, *(str(getattr(rows[name], one)) for one in COLUMNS)] for name in names)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS) + 1)]
    if markdown:
        first, *rest = (f"| {' | '.join(line)} |" for line in cells)
        return [first, f"|---|{'---:|' * len(COLUMNS)}", *rest]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in cells]


def summarised(summary: Summary, seconds: float, jobs: int, *, markdown: bool = False) -> list[str]:
    rate = summary.seeds / max(seconds, 1e-9)
    speed = f"{rate:.1f} a second, {60 * rate / jobs:.0f} a minute and process"
    lines = [
        f"{summary.seeds} seeds in {seconds:.1f} s: {speed}",
        f"{summary.simulated / 3600:.1f} hours were simulated, and {summary.events} events",
        "",
        *table("workload", summary.workloads, list(WORKLOADS), markdown=markdown),
        "",
        *table("fault", summary.faults, [CALM, *FAULTS], markdown=markdown),
        "",
    ]
    told = []
    writes = summary.writes
    for workload in ("guarded-counter", "fenced-counter"):
        if writes[f"{workload} writes"]:
            lost = writes[f"{workload} overwritten"]
            told.append(f"{workload}: {writes[f'{workload} writes']} writes accepted, {lost} updates lost")
    for (checker, assumption), times in sorted(summary.excused.items()):
        told.append(f"excused: {checker}, {times} times: {ASSUMPTIONS[assumption]}")
    if not summary.excused:
        told.append("excused: nothing")
    failed = len(summary.failures)
    told.append(f"{failed} seeds failed" if failed else "no seed failed")
    return lines + [f"- {line}" if markdown else line for line in told]


def story(verdict: Verdict, options: Options, strokes: int) -> list[str]:
    """A failure: what was built, what went wrong, what was seen."""
    shape = verdict.shape
    wrong = verdict.wrong
    built = f"{shape.nodes} nodes, {shape.clients} clients, ttl {shape.ttl:g} s, max_ttl {MAX_TTL:g} s"
    kept = f"quarantine {'on' if shape.quarantine else 'off'}, fences kept for {shape.fence_ttl:g} s"
    lines = [
        f"seed {verdict.seed}, {verdict.workload}: {built}, {kept}",
        f"faults left after shrinking ({len(verdict.strokes)} of {strokes}):",
        *(f"  {stroke}" for stroke in verdict.strokes),
        "what happened:",
    ]
    at = len(verdict.lines)
    if wrong:
        at = next((i for i, line in enumerate(verdict.lines) if wrong[0].text in line), at)
    lines += [f"  {line}" for line in verdict.lines[max(0, at - BEFORE) : at + AFTER]]
    lines += [f"{one.checker} at {one.at:.3f} s: {one.text}" for one in wrong[:5]]
    lines += verdict.crash.splitlines()
    lines.append(f"replay: {command(verdict.seed, options)}")
    return lines


def command(seed: int, options: Options) -> str:
    words = f"python -m quorumlock.lab fuzz --start {seed} --seeds 1"
    if options.workload or options.fault:
        words += f" --scenario {options.workload or ''}{f'/{options.fault}' if options.fault else ''}"
    if options.keep is not None:
        words += f" --keep {','.join(map(str, options.keep)) or 'none'}"
    return words
