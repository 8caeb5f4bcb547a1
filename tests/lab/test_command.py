"""`python -m quorumlock.lab fuzz`: what it says, how it ends, and that a failure can be replayed as it says."""

from __future__ import annotations

import functools
import io
import shlex
import subprocess
import sys

import pytest

from quorumlock.engines.memory.locks import QUARANTINE
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.lab.__main__ import main
from quorumlock.lab.fuzz import Bar, Row, Summary, fuzz
from quorumlock.lab.run import Options, simulate
from quorumlock.lab.shrink import blame, shrink


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--seeds -3", "--seeds -3: must be 1 or more"),
        ("--seeds 0", "--seeds 0: must be 1 or more"),
        ("--start -1", "--start -1: must be 0 or more"),
        ("--jobs 0", "--jobs 0: must be 1 or more"),
        ("--scenario mutx", "there is no workload 'mutx': did you mean mutex?"),
        ("--scenario 12345", "there is no workload '12345': There are mutex, guarded-counter"),
        ("--scenario mutex/old-disc", "there is no fault 'old-disc': did you mean old-disk?"),
        ("--keep 1,x", "--keep 1,x: must be numbers of strokes"),
        ("--log", "--log --seeds 1000: the log is that of one seed"),
    ],
)
def test_a_mistake_in_the_call_is_told_and_nothing_is_run(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuzz", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert out == ""


def test_a_number_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fuzz", "--seeds", "many"])
    assert ended.value.code == 2
    assert "invalid int value: 'many'" in capsys.readouterr().err


def test_the_summary_is_by_workload_and_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--seeds", "4", "--start", "8", "--scenario", "mutex/client-pause"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("4 seeds in ")
    assert "a minute and process" in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith(("mutex", "client-pause"))] == [
        ["mutex", "4"],
        ["client-pause", "4"],
    ]
    assert out.endswith("no seed failed\n")
    assert err == "", "no bar where nobody sees it"


def test_the_same_seeds_are_the_same_in_several_processes() -> None:
    assert fuzz(16, 24, Options(workload="mutex"), 2) == fuzz(16, 24, Options(workload="mutex"), 1)


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """A core without quarantine: fails by exclusion, now and then."""
    plain = ServerDouble._not_standing

    def trusting(self: ServerDouble, marker: bytes | None, expected: bytes) -> list[int] | None:
        refusal = plain(self, marker, expected)
        return None if refusal and refusal[0] == QUARANTINE else refusal

    patch.setattr(ServerDouble, "_not_standing", trusting)


@functools.cache
def failing_seed() -> int:
    """While the core is broken in that way."""
    options = Options(workload="mutex")
    return next(seed for seed in range(2000) if blame(simulate(seed, options)) == "exclusion")


def test_a_failure_is_told_as_a_short_story_that_can_be_replayed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetful(monkeypatch)
    seed = failing_seed()
    assert main(["fuzz", "--seeds", "1", "--start", str(seed), "--scenario", "mutex"]) == 1
    out = capsys.readouterr().out
    assert "1 seeds failed" in out
    assert f"seed {seed}, mutex: " in out
    assert "exclusion at " in out
    assert "is held by" in out
    replay = next(line for line in out.splitlines() if line.startswith("replay: "))
    words = shlex.split(replay.removeprefix("replay: python -m quorumlock.lab "))
    assert main(words) == 1
    assert "exclusion at " in capsys.readouterr().out
    monkeypatch.undo()
    assert main(words) == 0, "and with the core as it is, it does not fail"


def test_a_story_is_shrunk_to_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful(monkeypatch)
    options = Options(workload="mutex")
    verdict = simulate(failing_seed(), options)
    smaller, replay = shrink(verdict, options)
    assert blame(smaller) == "exclusion"
    assert 1 <= len(smaller.strokes) <= len(verdict.strokes)
    assert replay.keep is not None
    for number in replay.keep:
        without = tuple(one for one in replay.keep if one != number)
        assert blame(simulate(verdict.seed, replay._replace(keep=without))) != "exclusion", "one more could go"


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar(200)
    bar.show(Summary(workloads={"mutex": Row(seeds=100)}))
    bar.end()
    assert "[###############...............] 100/200 seeds" in terminal.getvalue()


def test_it_is_a_module_that_can_be_run_and_not_imported_with_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quorumlock.lab", "fuzz", "--seeds", "1", "--log"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "town faults stop" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("digest ")
    asked = "import quorumlock, sys; print([name for name in sys.modules if 'quorumlock.lab' in name])"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
