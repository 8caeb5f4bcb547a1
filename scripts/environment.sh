#!/bin/sh
# Makes an environment and installs what `make demo` needs (demo), or what everything else needs (dev). It is .venv,
# or $VENV: one for each interpreter that was asked for by name ($PYTHON).
# Does nothing, in a few milliseconds, where that is done: the stamp tells the folder and the state of pyproject.toml.
set -eu
what=$1
venv=${VENV:-.venv}
here=$(pwd -P)
state="$here $(cat pyproject.toml scripts/environment.sh scripts/groups.py | cksum)"
stamp=$venv/ready-$what

if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$state" ]; then
    exit 0
fi

makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

if ! "$venv/bin/python" -c '' 2>/dev/null || [ "$(cat "$venv/folder" 2>/dev/null)" != "$here" ]; then
    # shellcheck disable=SC2086 # the candidates are words
    python=$(scripts/find-python.sh ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python} || true)
    if [ -z "$python" ]; then
        echo "quorumlock needs Python 3.11 or later, and ${PYTHON:-python3} is not: install one, or name it" \
            "(make PYTHON=…)." >&2
        exit 1
    fi
    if ! makes_venvs "$python" && ! { scripts/debian-install.sh python3-venv && makes_venvs "$python"; }; then
        echo "$python cannot make virtual environments, and this user cannot install Debian's python3-venv." >&2
        exit 1
    fi
    echo "creating $venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    echo "$here" >"$venv/folder"
fi

case $what in
    demo) groups="bench" ;;
    *) groups="bench dev" ;;
esac
echo "installing what '$what' needs into $venv"
# Read from pyproject.toml by a script: pip knows groups from 25.1 on, and Debian's is older.
# shellcheck disable=SC2086 # the groups are words
"$venv/bin/python" scripts/groups.py $groups >"$venv/requirements.txt"
"$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check \
    --editable '.[all]' --requirement "$venv/requirements.txt"
echo "$state" >"$stamp"
