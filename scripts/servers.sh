#!/bin/sh
# Makes sure that the servers of the tests are there. Valkey comes as a wheel; Redis is the system's.
set -eu
if command -v redis-server >/dev/null; then
    exit 0
fi
if scripts/debian-install.sh redis-server && command -v redis-server >/dev/null; then
    exit 0
fi
echo "redis-server is not installed and cannot be installed by this user: its tests are skipped" \
    "(they run on Valkey all the same; in CI this is a failure)." >&2
[ -z "${CI:-}" ]
