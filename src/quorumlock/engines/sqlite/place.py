"""Where the file is: from a URL to a path, and what has to be there before SQLite is asked to open it.

sqlite://                the file of this user, in the state directory
sqlite:///locks.db       relative to the working directory of this moment
sqlite:////var/locks.db  absolute
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from ...errors import ConfigurationError, EngineError
from ...options import shown

FORMS = "sqlite:///relative/file.db, sqlite:////absolute/file.db, or sqlite:// for the file of this user"


class Place(NamedTuple):
    """A path, absolute. `ours`: its folder is the library's own and is made where it is missing."""

    path: str
    ours: bool

    @property
    def text(self) -> str:
        """The path for messages and labels, whatever bytes it is made of."""
        return os.fsencode(self.path).decode(errors="replace")


def place_of(url: str) -> Place:
    """Touches no disk."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        raise ConfigurationError(f"the URL {shown(url)} is none of {FORMS}")
    if not rest:
        return Place(_default_path(), True)
    host, _, written = rest.partition("/")
    if written == ":memory:" or host == ":memory:":
        raise ConfigurationError(
            f"the URL {shown(url)}: a database in memory is one connection's own; for locks within this process "
            "use memory://"
        )
    for mark, code in (("?", "%3F"), ("#", "%23")):
        if mark in rest:
            raise ConfigurationError(
                f"the URL {shown(url)} holds {mark!r}: it takes no options; in the name of a file write {code}"
            )
    if host:
        raise ConfigurationError(
            f"the URL {shown(url)} names the host {shown(host)}: the file is on this machine. Write {FORMS}"
        )
    path = os.fsdecode(_unquoted(written))
    if not path or path.endswith("/"):
        raise ConfigurationError(f"the URL {shown(url)} names no file. Write {FORMS}")
    if "\0" in path:
        raise ConfigurationError(f"the URL {shown(url)} holds a NUL, which no path does")
    if path.startswith("~"):
        raise ConfigurationError(f"the URL {shown(url)}: ~ is not expanded; write the whole path, or ./~")
    try:
        return Place(os.path.abspath(path), False)
    except FileNotFoundError:
        raise ConfigurationError(
            f"the URL {shown(url)} is relative to a working directory that was deleted; write an absolute path"
        ) from None


def _unquoted(written: str) -> bytes:
    if "%" not in written:
        return written.encode("utf-8")
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(written)


def _default_path() -> str:
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: such a value is to be ignored
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    if not os.path.isabs(base):
        raise ConfigurationError("sqlite:// needs a home directory: set HOME or XDG_STATE_HOME, or write a path")
    return os.path.join(base, "quorumlock", "locks.db")


def prepare(place: Place) -> None:
    """Says what SQLite would only call 'unable to open database file'."""
    folder = os.path.dirname(place.path)
    try:
        if place.ours:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise NotADirectoryError
        try:
            kind = os.stat(place.path).st_mode
        except FileNotFoundError:
            return  # it will be made
    except FileNotFoundError:
        raise ConfigurationError(
            f"sqlite:{place.text}: its folder does not exist; make it, or correct the URL"
        ) from None
    except (NotADirectoryError, FileExistsError):
        raise ConfigurationError(f"sqlite:{place.text}: its folder is not a directory; correct the URL") from None
    except OSError as error:
        raise EngineError(
            f"sqlite:{place.text}: cannot be reached ({error.strerror}); this user (uid {_uid()}) needs to read, "
            "write and enter its folder",
            place.text,
        ) from None
    if stat.S_ISDIR(kind):
        raise ConfigurationError(f"sqlite:{place.text} is a directory; name a file in it")
    if not stat.S_ISREG(kind):
        raise ConfigurationError(f"sqlite:{place.text} is not a regular file")
    if not os.access(place.path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise EngineError(
            f"sqlite:{place.text}: is read-only for this user (uid {_uid()}), or its file system is; whoever locks "
            "needs to write the file and its folder",
            place.text,
        )


def _uid() -> object:
    return os.geteuid() if hasattr(os, "geteuid") else "?"
