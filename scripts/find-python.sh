#!/bin/sh
# Prints the first of these interpreters that is new enough, preferably one that can make environments.
# One that pyenv keeps is found whether or not pyenv's settings choose it.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

for check in makes_venvs true; do
    for name in "$@"; do
        for candidate in "$name" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/"$name"; do
            if new_enough "$candidate" && $check "$candidate"; then
                echo "$candidate"
                exit 0
            fi
        done
    done
done
exit 1
