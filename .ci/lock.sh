#!/usr/bin/env bash
# Write the lock files anew from pyproject.toml, with the newest versions that it allows.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/env.sh

python=$(bash .ci/pick-python.sh) || stop "no Python from 3.11 on; run 'make setup' first"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Print the names and versions that a fresh environment holds after installing the arguments.
resolve() {
    rm -rf "$work/venv"
    "$python" -I -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --progress-bar off "$@" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        stop "pip could not resolve $*"
    }
    "$work/venv/bin/python" -m pip list --format=freeze | grep -vE '^pip==' | LC_ALL=C sort -t= -k1,1 --ignore-case
}

# Print a list of pyproject.toml: wanted EXPRESSION
wanted() {
    "$python" -I -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*$1, sep='\n')"
}

mapfile -t runtime < <(wanted "p['dependencies']")
mapfile -t tools < <(wanted "p['optional-dependencies']['dev']")

say "lock: resolving what compiles"
resolve --upgrade setuptools setuptools-scm Cython >"$work/build"
say "lock: resolving what runs"
resolve "${runtime[@]}" | grep -v '^setuptools==' >"$work/run"
say "lock: resolving checks and tests"
resolve -r "$work/run" "${tools[@]}" | grep -v '^setuptools==' >"$work/all"
# Its dependencies would bring a second client of models; the tests want only the program it bundles.
resolve --no-deps claude-agent-sdk | grep '^claude' >>"$work/all"

{
    echo '# What compiles pyfuse3 and installs this project. Written by `make lock`; do not edit.'
    cat "$work/build"
} >requirements-build.lock
{
    echo '# What rnixfs needs to run, pyfuse3 compiled from source. Written by `make lock`; do not edit.'
    cat "$work/run"
} >requirements.lock
{
    echo '# What checks and tests need beyond requirements.lock. Written by `make lock`; do not edit.'
    echo '# claude-agent-sdk is here for the `claude` program that it bundles; its own dependencies are left out.'
    LC_ALL=C sort -t= -k1,1 --ignore-case "$work/all" | grep -vxFf "$work/run"
} >requirements-dev.lock
say "lock: written; 'make test' tells whether the new versions will do"
