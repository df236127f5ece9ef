#!/usr/bin/env bash
# Make an environment with LangGraph, once, and print its Python; say why on standard error, and print nothing,
# where that cannot be done. What is measured beside it is left out then.
#
# usage: bench/langgraph.sh [FOLDER]     where the environment is, or is made: bench/out/langgraph
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/.ci/env.sh"

lock=$root/bench/requirements-langgraph.txt
venv=${1:-$root/bench/out/langgraph}
limit=300 # seconds

leave() {
    printf 'rnixfs: bench: LangGraph will not be measured: %s\n' "$*" >&2
    exit 0
}

python=$(bash "$root/.ci/pick-python.sh") || leave "no Python from 3.11 on that can make an environment"
# What the environment depends on; paths count, for scripts in it hold them.
state=$(printf '%s\n' "$venv" "$python" && "$python" -I -c 'import sys; print(sys.version)' && cat -- "$lock")

if [ "$(cat "$venv/.made" 2>/dev/null)" != "$state" ] || ! "$venv/bin/python" -I -c 'import langgraph' 2>/dev/null; then
    say "bench: installing LangGraph into ${venv#"$root/"} (once)" >&2
    rm -rf "$venv"
    mkdir -p "${venv%/*}"
    "$python" -I -m venv "$venv" >&2 || leave "$python could not make an environment (its words are above)"
    timeout "$limit" "$venv/bin/python" -m pip install --quiet --no-deps --only-binary=:all: --retries 1 \
        --timeout 15 -r "$lock" >"$venv/pip.log" 2>&1 ||
        leave "pip could not install it: $(tail -n 1 "$venv/pip.log")"
    printf '%s\n' "$state" >"$venv/.made"
fi
printf '%s\n' "$venv/bin/python"
