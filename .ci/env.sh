# Sourced by every script here: the same surroundings whoever calls, whatever their shell holds.

umask 022
export PYTHONUTF8=1
export LC_ALL=C.UTF-8
export PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_NO_INPUT=1
# Indexes, proxies and certificates of the user's pip stay; what would send packages elsewhere or stop
# pyfuse3 from being compiled does not.
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS PYTHONOPTIMIZE
unset PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_DRY_RUN PIP_NO_DEPS PIP_ONLY_BINARY
unset PIP_REQUIRE_HASHES PIP_CONSTRAINT PIP_BUILD_CONSTRAINT PIP_REQUIREMENT PIP_EDITABLE PIP_QUIET PIP_LOG

# One line for each thing that is done.
say() {
    printf 'rnixfs: %s\n' "$*"
}

# Stop with one sentence that says what is wrong and what would be right.
stop() {
    printf 'rnixfs: %s\n' "$*" >&2
    exit 1
}
