#!/usr/bin/env bash
# What `make test-system` needs and `make setup` does not bring: programs of the system, a driver for the browser, and what
# the tests judge with. As root the programs are installed by apt; otherwise, or where there is no apt, this names what is
# missing and exits with 2. With --check it only looks.
set -u
cd "$(dirname "$0")/../.." || exit 2

missing=()
packages=()
need() { # what it is, Debian package, a program by name or path …
    local what=$1 package=$2 program
    shift 2
    for program in "$@"; do
        if command -v "$program" >/dev/null; then
            return
        fi
    done
    missing+=("$what ($1)")
    packages+=("$package")
}

look() {
    missing=()
    packages=()
    need "PostgreSQL 15" postgresql-15 /usr/lib/postgresql/15/bin/postgres
    need "nginx" nginx-light nginx /usr/sbin/nginx
    need "OpenSSL" openssl openssl
    need "Chromium" chromium chromium
    need "Node" nodejs node
    need "npm" npm npm
    need "Prometheus' promtool" prometheus promtool
}

# Node's modules as the lock file has them; kept while that does not change.
modules() {
    cmp -s tests/system/package-lock.json tests/system/node_modules/.turnlog-lock && return 0
    [ "${1:-}" = "--check" ] && return 1
    command -v npm >/dev/null || return 1
    (cd tests/system && timeout 300 npm ci --ignore-scripts --silent >/dev/null) || return 1
    cp tests/system/package-lock.json tests/system/node_modules/.turnlog-lock
}

driver() {
    cmp -s requirements/system.lock .venv/.turnlog-system && .venv/bin/python -c "import playwright" 2>/dev/null && return 0
    [ "${1:-}" = "--check" ] && return 1
    env -u PIP_CONSTRAINT -u UV_CONSTRAINT -u UV_OVERRIDE -u VIRTUAL_ENV timeout 300 .venv/bin/uv pip install --quiet \
        --python .venv/bin/python --no-deps --require-hashes -r requirements/system.lock || return 1
    cp requirements/system.lock .venv/.turnlog-system
}

look
if [ ${#missing[@]} -gt 0 ] && [ "${1:-}" != "--check" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # We want the programs, not servers that start by themselves and take ports 5432 and 80.
    if ! [ -e /etc/postgresql-common ]; then
        mkdir -p /etc/postgresql-common/createcluster.d
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/turnlog-tests.conf
    fi
    if ! [ -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    timeout 300 apt-get update -qq >/dev/null
    # One by one: what the one has not, another may have.
    for package in "${packages[@]}"; do
        timeout 300 apt-get install -y -qq --no-install-recommends "$package" >/dev/null
    done
    look
fi
lacking=("${missing[@]}")
modules "${1:-}" || lacking+=("Node's modules of tests/system/package-lock.json (npm ci)")
driver "${1:-}" || lacking+=("the packages of requirements/system.lock (uv pip install)")
if [ ${#lacking[@]} -gt 0 ]; then
    printf 'test-system needs what is not on this machine: %s' "${lacking[0]}" >&2
    [ ${#lacking[@]} -gt 1 ] && printf ', %s' "${lacking[@]:1}" >&2
    [ ${#packages[@]} -gt 0 ] && printf '; install %s, or run this as root where apt has it' "${packages[*]}" >&2
    echo >&2
    exit 2
fi
