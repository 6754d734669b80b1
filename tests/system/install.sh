#!/usr/bin/env bash
# What `make test-system` needs and wheels cannot bring. As root it is installed by apt; otherwise, or where there is no
# apt, this names what is missing and exits with 2. With --check it only looks.
set -u

missing=()
packages=()
need() { # program, what it is, Debian package
    if ! [ -x "$1" ]; then
        missing+=("$2 ($1)")
        packages+=("$3")
    fi
}

look() {
    missing=()
    packages=()
    need /usr/lib/postgresql/15/bin/postgres "PostgreSQL 15" postgresql-15
}

look
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if [ "${1:-}" != "--check" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # We want the programs, not a server that starts by itself and takes port 5432.
    if ! [ -e /etc/postgresql-common ]; then
        mkdir -p /etc/postgresql-common/createcluster.d
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/turnlog-tests.conf
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
    look
fi
if [ ${#missing[@]} -gt 0 ]; then
    (IFS=,; echo "test-system needs what is not on this machine: ${missing[*]}; install ${packages[*]}, or run this as root where apt has it" >&2)
    exit 2
fi
