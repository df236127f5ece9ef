#!/usr/bin/env bash
# The main job, shown step by step: mount, let an agent explore a folder, watch it through files, unmount.
#
# usage: demo.sh [FOLDER]     the folder it explores; this repository where none is given
#
# `make demo` runs it with the command `rnix` of .venv first in PATH. It mounts on $RNIX_MOUNT, or else on a
# folder of its own that it removes again. Nothing is sent anywhere: the model is a script, not an AI.
set -euo pipefail

LIMIT=60 # seconds for one command; none takes more than a few

say() {
    printf '\n== %s\n' "$*"
}

stop() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

# A command with a limit, killed if it does not heed it: whatever fails, this script ends.
bounded() {
    timeout --foreground -k 5 "$LIMIT" "$@" </dev/null
}

# Show a command, and run it as it is shown.
show() {
    printf '\n$ %s\n' "$1"
    bounded bash -c "$1" || stop "this command failed with status $?: $1"
}

command -v rnix >/dev/null || stop "there is no command rnix in PATH; run 'make demo', which sets it up"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
FOLDER=${1:-$here}
FOLDER=$(CDPATH='' cd -- "$FOLDER" 2>/dev/null && pwd -P) || stop "$1 is no folder that can be entered; name another"

own=
if [ -n "${RNIX_MOUNT:-}" ] && [ "${RNIX_MOUNT#/}" = "$RNIX_MOUNT" ]; then
    RNIX_MOUNT=$PWD/$RNIX_MOUNT
fi
if [ -z "${RNIX_MOUNT:-}" ]; then
    own=$(mktemp -d "${TMPDIR:-/tmp}/rnix-demo.XXXXXX")
    RNIX_MOUNT=$own/rnix
fi
export FOLDER RNIX_MOUNT

mounted=
leave() {
    status=$?
    trap '' INT TERM HUP
    cd /
    if [ -n "$mounted" ] && ! bounded rnix umount >/dev/null 2>&1; then
        bounded rnix umount --force >/dev/null 2>&1 || true
        if grep -qF " $RNIX_MOUNT " /proc/self/mountinfo; then
            printf 'demo: still mounted: %s\n' "$RNIX_MOUNT" >&2
        fi
    fi
    if [ -n "$own" ]; then
        rmdir "$RNIX_MOUNT" "$own" 2>/dev/null || true
    fi
    exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

cd /
printf 'The folder: %s\nThe mount:  %s\n' "$FOLDER" "$RNIX_MOUNT"

say "Mount the tree, with the folder below dev/fs."
if [ "$(bounded rnix daemon status 2>/dev/null | sed -n 's/^state: *//p')" = running ]; then
    stop "something is mounted on $RNIX_MOUNT already; run 'rnix umount' first, or set RNIX_MOUNT to another folder"
fi
mounted=yes
# shellcheck disable=SC2016  # the variables are those of the command that is shown
show 'rnix mount "$RNIX_MOUNT" --root "$FOLDER" --state none'
cd "$RNIX_MOUNT"
show 'ls'
show 'ls -x dev proc'

say "Spawn an agent on the folder. Its model is a script, no AI; its tool calls and all the numbers are real."
# shellcheck disable=SC2016
show '(cd "$FOLDER" && rnix spawn --agent code-analyst --provider script "Explore this folder and report")'

say "The process is a folder of files."
show 'ls -x proc/1'
show 'cat proc/1/status'

say "What it did, as strace shows it, and as JSON lines."
show 'rnix strace -e stat,write 1'
show 'tail -n 3 proc/1/trace.jsonl'

say "A model is a file."
show "echo '{\"intent\":\"hello\"}' > dev/llm/script; cat dev/llm/script"

say "So is a shell, which runs with the rights of whoever mounted."
show "echo 'uname -sr; exit 3' > dev/shell; cat dev/shell"

say "A process that waits, made, stopped and ended by echo."
show "echo '{\"intent\":\"wait 600 s\",\"provider\":\"script\"}' > proc/spawn; cat proc/spawn"
show 'echo pause > proc/2/ctl; rnix ps; echo kill > proc/2/ctl; cat proc/2/wait'

say "The report of the first process, which stays readable."
show 'cat proc/1/result'

say "Unmount."
cd /
show 'rnix umount'
mounted=
[ ! -e "$RNIX_MOUNT/proc" ] || stop "the tree is still there after rnix umount"
say "Done. Next: docs/quick-start.md"
