#!/bin/sh
# Makes .venv and installs what `make demo` needs (demo), or what everything else needs (dev).
# Does nothing, in a few milliseconds, where that is done: the stamp tells the folder and the state of pyproject.toml.
set -eu
what=$1
here=$(pwd -P)
state="$here $(cat pyproject.toml scripts/environment.sh scripts/groups.py | cksum)"
stamp=.venv/ready-$what

if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$state" ]; then
    exit 0
fi

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() { # one that can make environments, else one that is at least new enough
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        new_enough "$candidate" && makes_venvs "$candidate" && echo "$candidate" && return
    done
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        new_enough "$candidate" && echo "$candidate" && return
    done
}

if ! .venv/bin/python -c '' 2>/dev/null || [ "$(cat .venv/folder 2>/dev/null)" != "$here" ]; then
    python=$(find_python || true)
    if [ -z "$python" ]; then
        echo "quorumlock needs Python 3.11 or later, and there is none here: install one, or name it (make PYTHON=…)." >&2
        exit 1
    fi
    if ! makes_venvs "$python" && ! { scripts/debian-install.sh python3-venv && makes_venvs "$python"; }; then
        echo "$python cannot make virtual environments, and this user cannot install Debian's python3-venv." >&2
        exit 1
    fi
    echo "creating .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
    echo "$here" >.venv/folder
fi

case $what in
    demo) groups="bench" ;;
    *) groups="bench dev" ;;
esac
echo "installing what '$what' needs into .venv"
# Read from pyproject.toml by a script: pip knows groups from 25.1 on, and Debian's is older.
# shellcheck disable=SC2086 # the groups are words
.venv/bin/python scripts/groups.py $groups >.venv/requirements.txt
.venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
    --editable '.[all]' --requirement .venv/requirements.txt
echo "$state" >"$stamp"
