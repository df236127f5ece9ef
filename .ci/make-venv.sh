#!/usr/bin/env bash
# Make .venv hold the pinned packages and this project; do nothing where it already does.
#
# usage: make-venv.sh run|test     what running needs, or that and what checks and tests need
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/env.sh

python=$(bash .ci/pick-python.sh) || stop "no Python from 3.11 on that has its headers and the module venv." \
    "Install python3, python3-venv and python3-dev, or name one: make PYTHON=/path/to/python3.11 setup"
version=$("$python" -I -c 'import sys; print(sys.version)')

# What a stamp says: all that the installed packages depend on. Paths count, for scripts in .venv hold them.
state() {
    printf '%s\n' "$PWD" "$python" "$version"
    cat -- "$@"
}

# pip's own words are shown only if it fails, the second time: networks hiccup.
pip_install() {
    local log=.venv/pip.log
    .venv/bin/python -m pip install --no-deps --no-build-isolation --progress-bar off "$@" >"$log" 2>&1 ||
        .venv/bin/python -m pip install --no-deps --no-build-isolation --progress-bar off "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        stop "pip could not install $* (its words are above)." \
            "If it is the network, run the same command again."
    }
}

# Bring one step up to date: step NAME WORDS FILES-IT-DEPENDS-ON -- ARGUMENTS-OF-PIP...
step() {
    local name=$1 words=$2 files=()
    shift 2
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    if state "${files[@]}" | cmp -s - ".venv/.$name"; then
        say ".venv: $name is up to date"
        return
    fi
    say ".venv: $words"
    rm -f ".venv/.$name"
    pip_install "$@"
    state "${files[@]}" >".venv/.$name.new"
    mv ".venv/.$name.new" ".venv/.$name"
}

if ! state | cmp -s - .venv/.python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say ".venv: making it with $python (${version%% *})"
    rm -rf .venv
    "$python" -I -m venv .venv || stop "$python could not make a virtual environment in .venv (its words are above)."
    state >.venv/.python
fi

step build "installing what compiles pyfuse3 (requirements-build.lock)" \
    requirements-build.lock -- -r requirements-build.lock
step run "installing what rnixfs needs and compiling pyfuse3 (requirements.lock; half a minute)" \
    requirements-build.lock requirements.lock -- -r requirements.lock
step rnixfs "installing rnixfs itself, editable, with the command .venv/bin/rnix" \
    requirements-build.lock pyproject.toml -- --editable .
if [ "$1" = test ]; then
    step test "installing the tools of checks and tests (requirements-dev.lock; 200 MB)" \
        requirements-dev.lock -- -r requirements-dev.lock
fi
