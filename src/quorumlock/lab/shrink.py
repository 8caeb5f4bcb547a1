"""Makes a failing story short: faults are left out, one after another, as long as it fails in the same way."""

from __future__ import annotations

from .run import Options, Verdict, simulate

TRIES_MOST = 150


def blame(verdict: Verdict) -> str:
    """In which way it fails: the checker that complains first, or the crash."""
    return "crash" if verdict.crash else verdict.wrong[0].checker if verdict.wrong else ""


def shrink(verdict: Verdict, options: Options) -> tuple[Verdict, Options]:
    """The same failure with as few strokes as were found to be enough, and the options that replay it."""
    cause, tries = blame(verdict), TRIES_MOST
    best, kept = verdict, [stroke.number for stroke in verdict.strokes]
    size = len(kept)
    while size >= 1:
        at = 0
        while at < len(kept) and tries > 0:
            fewer = kept[:at] + kept[at + size :]
            tries -= 1
            tried = simulate(verdict.seed, options._replace(keep=tuple(fewer)))
            if blame(tried) == cause:
                best, kept = tried, fewer
            else:
                at += size
        size //= 2
    return best, options._replace(keep=tuple(kept))
