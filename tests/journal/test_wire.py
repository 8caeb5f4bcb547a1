"""What a client with a journal says: the same as without, by scripts that write down what they do."""

from __future__ import annotations

import pytest

from quorumlock.core.requests import Break, Join, Release, Request
from quorumlock.engines.redis import scripts
from quorumlock.engines.redis.wire import FREE, JOURNAL_TTL_MS, Wire
from tests.unit.test_wire import SAID, WIRE, parsed

NOTED = Wire(
    prefix="app:", fleet="f00d", nodes=3, max_ttl=60.0, fence_ttl=86400.0, durable=False, quarantine=True,
    journal=500,
)  # fmt: skip
WHERE = f"500 {JOURNAL_TTL_MS} app:ql:journal".encode()


def said(wire: Wire, request: Request, *, source: bool = False) -> list[bytes]:
    return parsed(
        wire.encode(request, source=source) + (b"" if isinstance(request, (*FREE, Join)) else wire.tail(b"mark"))
    )


@pytest.mark.parametrize("request_", [request for request, _, _ in SAID], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("source", [False, True])
def test_a_request_says_the_same_and_where_to_write(request_: Request, source: bool) -> None:
    plain, noted = said(WIRE, request_, source=source), said(NOTED, request_, source=source)
    script = next(script for request, script, _ in SAID if request is request_)
    if script is scripts.REFUSED:
        assert noted == [*plain[:-2], WHERE, b""]
    elif script.sha not in scripts.NOTED:
        assert noted == plain
    else:
        other = scripts.NOTED[script.sha]
        assert noted[:2] == ([b"EVAL", other.source.encode()] if source else [b"EVALSHA", other.sha.encode()])
        by = [b""] if isinstance(request_, Break) else []
        end = [b""] if isinstance(request_, FREE) else [b"mark"]
        told = plain[2:] if isinstance(request_, FREE) else plain[2:-1]
        assert noted[2:] == [*told, *by, WHERE, *end]


def test_whoever_takes_or_gives_back_a_lock_has_it_written_down() -> None:
    """Of what the scripts do, nothing that changes who has a lock is left out; but healing, which is no grant."""
    names = {name for name, value in vars(scripts).items() if value in scripts.NOTED.values()}
    assert {name.removeprefix("NOTED_") for name in names} == {
        "ACQUIRE", "QUEUE", "READ", "ANY", "ALL", "RELEASE", "RELEASE_MANY", "UNREAD", "BREAK", "DOWNGRADE",
    }  # fmt: skip
    assert {script for _, script, _ in SAID if script.sha in scripts.NOTED} == {
        vars(scripts)[name.removeprefix("NOTED_")] for name in names
    }


def test_without_its_lines_a_script_is_the_plain_one() -> None:
    """So what a client with a journal runs is what was tested without, and only those lines more."""
    for sha, noted in scripts.NOTED.items():
        plain = scripts.SOURCES[sha].splitlines()
        lines = {line.strip().removeprefix("--+ ") for line in plain if line.strip().startswith("--+ ")}
        assert lines, "it writes something down"
        start = noted.source.index("-- In front of scripts")
        end = noted.source.index("\nend\n\n", noted.source.index("local function note_end")) + len("\nend\n\n")
        rest = (noted.source[:start] + noted.source[end:]).splitlines()
        assert [line for line in rest if line.strip() not in lines] == [
            line for line in plain if not line.strip().startswith("--+ ")
        ]


def test_the_scripts_of_every_lease_are_loaded_ahead() -> None:
    assert WIRE.pair == (scripts.RELEASE, scripts.ACQUIRE)
    assert NOTED.pair == (scripts.NOTED_RELEASE, scripts.NOTED_ACQUIRE)
    assert parsed(NOTED.load(Release("a", "t")))[2] == scripts.NOTED_RELEASE.source.encode()
