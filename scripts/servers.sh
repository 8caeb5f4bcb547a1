#!/bin/sh
# Makes sure that the servers of the tests are there, Java for TLC, and what makes networks and clocks go wrong.
# Valkey comes as a wheel; the others are the system's.
set -eu

there() { # Debian keeps some of them out of the path of ordinary users
    command -v "$1" >/dev/null && return
    for place in /usr/sbin /usr/lib/postgresql/*/bin /usr/share/zookeeper/bin; do
        [ -x "$place/$1" ] && return
    done
    return 1
}

missing=
for pair in redis-server:redis-server postgres:postgresql mariadbd:mariadb-server pgbouncer:pgbouncer etcd:etcd-server zkServer.sh:zookeeper java:default-jre-headless ip:iproute2 cc:gcc chromium:chromium; do
    there "${pair%%:*}" || missing="$missing ${pair##*:}"
done
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086 # the packages are words
if scripts/debian-install.sh $missing; then
    exit 0
fi
echo "not installed, and not to be installed by this user:$missing. Their tests are skipped" \
    "(in CI this is a failure)." >&2
[ -z "${CI:-}" ]
