"""The dashboard and the alert rules name metrics, labels and values that are really exported."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import quorumlock
from quorumlock.observing import export_metrics
from tests.style.source import ROOT

FOLDER = ROOT / "examples" / "prometheus"
METRIC = re.compile(r"\bquorumlock_\w+")
LABELS = re.compile(r"\bby \(([^)]*)\)")
VALUES = re.compile(r'(\w+)="([^"]*)"')
OF_PROMETHEUS = {"le"}


def dashboard() -> list[str]:
    board = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    yaml = importlib.import_module("yaml")
    read = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in read["groups"] for rule in group["rules"]]


EXPRESSIONS = [*dashboard(), *(rule["expr"] for rule in rules())]


@pytest.fixture(scope="module")
def exported() -> tuple[set[str], set[str], set[tuple[str, str]]]:
    """The samples of a scrape after something of everything has happened: names, labels, and labels with values."""
    registry = CollectorRegistry()
    with quorumlock.connect("memory://?nodes=3", max_ttl=1.0) as locks:
        export_metrics(locks, registry)
        for server in locks.engine.servers[:2]:
            server.flush()
        with pytest.raises(quorumlock.NoQuorum):
            locks.lock("a", ttl=1).try_acquire()
        locks.engine.clock.advance(2)
        locks.lock("a", ttl=1).acquire().release()
        text = generate_latest(registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = {label for sample in samples for label in sample.labels}
    return {one.name for one in samples}, labels, {pair for one in samples for pair in one.labels.items()}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_asked_for_is_exported(
    expression: str, exported: tuple[set[str], set[str], set[tuple[str, str]]]
) -> None:
    names, labels, values = exported
    found = set(METRIC.findall(expression))
    assert found, "asks for nothing of ours"
    assert found <= names
    asked = {label.strip() for group in LABELS.findall(expression) for label in group.split(",")}
    assert asked <= labels | OF_PROMETHEUS
    assert set(VALUES.findall(expression)) <= values


def test_every_metric_is_on_the_dashboard(exported: tuple[set[str], set[str], set[tuple[str, str]]]) -> None:
    named = {name for expression in dashboard() for name in METRIC.findall(expression)}
    families = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in exported[0]}
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named}
    assert {name for name in families if f"{name}_total" not in families} == shown


def test_every_rule_says_what_it_means() -> None:
    for rule in rules():
        assert rule["alert"].startswith("Quorumlock")
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"].startswith("{{ $labels.group }}: ")
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_every_panel_has_its_place() -> None:
    board = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in board["panels"]})
    assert all(panel["description"] for panel in board["panels"])
