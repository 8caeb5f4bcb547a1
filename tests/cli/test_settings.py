"""Where commands find their fleet: options, the environment, quorumlock.toml; and that no secret is shown."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from quorumlock.cli.parsing import add_fleet_options
from quorumlock.cli.settings import Found, found
from quorumlock.errors import ConfigurationError

from .tools import complaint, quorumlock


def settled(*words: str, **environment: str) -> Found:
    parser = argparse.ArgumentParser()
    add_fleet_options(parser)
    return found(parser.parse_args(words), environment)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, two below one that may have a file."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    return tmp_path


def test_the_nearest_word_counts(folder: Path) -> None:
    home = str(folder / "config")
    assert settled(XDG_CONFIG_HOME=home).values == {}
    (folder / "config" / "quorumlock").mkdir(parents=True)
    (folder / "config" / "quorumlock" / "quorumlock.toml").write_text('url = "redis://home"')
    assert settled(XDG_CONFIG_HOME=home).values == {"url": "redis://home"}
    (folder / "a" / "quorumlock.toml").write_text('url = ["redis://x", "redis://y"]\nprefix = "p:"\nmax_ttl = 30')
    chosen = settled(XDG_CONFIG_HOME=home)
    assert chosen.values == {"url": ["redis://x", "redis://y"], "prefix": "p:", "max_ttl": 30}
    assert chosen.sources["prefix"] == str(folder / "a" / "quorumlock.toml")
    assert chosen.options == {"prefix": "p:", "max_ttl": 30, "fence_ttl": 86400.0}
    assert settled(QUORUMLOCK_URL="redis://env").values["url"] == "redis://env"
    told = settled("--url", "redis://told", "--prefix", "q:", QUORUMLOCK_URL="redis://env")
    assert (told.values["url"], told.values["prefix"], told.values["max_ttl"]) == ("redis://told", "q:", 30)
    assert told.sources["url"] == "--url"
    (folder / "other.toml").write_text('fleet = "blue"')
    assert settled("--config", str(folder / "other.toml")).values == {"fleet": "blue"}


def test_secrets_may_stay_elsewhere(folder: Path) -> None:
    file = folder / "a" / "quorumlock.toml"
    file.write_text('url = "redis://:${PASSWORD}@10.0.0.1"')
    assert settled(PASSWORD="geheim").values["url"] == "redis://:geheim@10.0.0.1"
    with pytest.raises(ConfigurationError, match="no PASSWORD"):
        settled()
    file.write_text('url_file = "secret"')
    with pytest.raises(ConfigurationError, match="url_file"):
        settled()
    (folder / "a" / "secret").write_text("redis://:geheim@10.0.0.2\n")
    assert settled().values["url"] == "redis://:geheim@10.0.0.2"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("url = ", "TOML"),
        ('colour = "red"', "unknown 'colour'"),
        ("max_ttl = true", "max_ttl"),
        ('max_ttl = "30"', "max_ttl"),
        ("durable = 1", "durable"),
        ('url = "redis://a"\nurl_file = "b"', "either"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_reason(folder: Path, text: str, words: str) -> None:
    (folder / "quorumlock.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=words) as raised:
        settled()
    assert str(folder / "quorumlock.toml") in str(raised.value)


def test_config_show_tells_who_says_so_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('url = "redis://me:${SECRET}@10.0.0.1/0?password=geheim2"\nmax_ttl = 5')
    shown = quorumlock("config", "show", "--config", str(file), env={"SECRET": "geheim"})
    assert shown.returncode == 0, shown.stderr
    assert "geheim" not in shown.stdout + shown.stderr
    assert str(file) in shown.stdout
    told = json.loads(
        quorumlock(
            "config", "show", "--json", "--prefix", "x:", "--config", str(file), env={"SECRET": "geheim"}
        ).stdout
    )
    assert told["prefix"] == {"value": "x:", "from": "--prefix"}
    assert told["max_ttl"]["value"] == 5
    assert "default" in quorumlock("config", "show", "--config", "/dev/null").stdout
    assert "cannot be read" in complaint(quorumlock("config", "show", "--config", str(tmp_path / "none")), 64)
