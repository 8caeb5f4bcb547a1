"""Every story is played once, and looked at by several tests."""

from __future__ import annotations

import functools

from quorumlock.lab import story
from quorumlock.lab.stage import play
from quorumlock.lab.story_facts import Verdict, judge

NAMES = story.names()


@functools.cache
def verdict(name: str, naive: bool) -> Verdict:
    return judge(play(story.load(name), naive=naive))
