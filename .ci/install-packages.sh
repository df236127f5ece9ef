#!/usr/bin/env bash
# Install the packages of Debian or Ubuntu that are missing, and only those.
#
# usage: install-packages.sh run|test     what running needs, or that and what the tests need
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/env.sh

has() {
    command -v "$1" >/dev/null 2>&1
}

# The packages that are missing, one a line. Each is judged by what it brings: a tool from elsewhere will do.
missing() {
    local python version
    has fusermount3 || echo fuse3
    has pkg-config || echo pkg-config
    { has pkg-config && pkg-config --exists fuse3; } || echo libfuse3-dev
    { has gcc && echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1; } || printf '%s\n' gcc libc6-dev
    if python=$(bash .ci/pick-python.sh); then
        version=$("$python" -I -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        "$python" -I -c 'import ensurepip, venv' >/dev/null 2>&1 || echo "$version-venv"
        "$python" -I -c 'import os, sysconfig as s; open(os.path.join(s.get_path("include"), "Python.h"))' \
            >/dev/null 2>&1 || echo "$version-dev"
    else
        printf '%s\n' python3 python3-venv python3-dev
    fi
    if [ "$1" = test ]; then
        has git || echo git
        has jq || echo jq
        has rsync || echo rsync
        has ps || echo procps
        # These build the server of models that the tests talk to.
        has cmake || echo cmake
        has ninja || echo ninja-build
        has g++ || echo g++
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

wanted=$(missing "$1" | tr '\n' ' ')
wanted=${wanted% }
if [ -z "$wanted" ]; then
    say "system packages: nothing is missing"
    exit 0
fi
has apt-get || stop "these packages are missing, and there is no apt-get to install them: $wanted." \
    "Install what your system calls them, then run the same command again."
[ "$(id -u)" = 0 ] || has sudo || stop "these packages are missing, and only root may install them: $wanted." \
    "Run 'apt-get install $wanted' as root, then the same command again."
if [ "$(id -u)" != 0 ] && [ ! -t 0 ] && ! sudo -n true 2>/dev/null; then
    stop "these packages are missing, and sudo wants a password with no terminal to ask on: $wanted." \
        "Run 'sudo apt-get install $wanted', then the same command again."
fi

say "system packages: installing $wanted"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    # shellcheck disable=SC2086  # a list of names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $wanted >"$log" 2>&1
}
# The lists of a fresh image are empty, those of an old one name versions that are gone; a network may hiccup.
as_root apt-get update >"$log" 2>&1 || true
if ! install; then
    as_root apt-get update >>"$log" 2>&1 || true
    install || {
        cat "$log" >&2
        stop "apt-get could not install $wanted (its words are above);" \
            "once 'apt-get install $wanted' works, run the same command again."
    }
fi

still=$(missing "$1" | tr '\n' ' ')
[ -z "$still" ] || stop "after installing $wanted this is still missing: ${still% }." \
    "rnixfs needs Python 3.11 or newer and libfuse 3, as Debian 12 and Ubuntu 24.04 have them."
