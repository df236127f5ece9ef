#!/usr/bin/env bash
# Compile the server in C and the client, then measure many processes, the log, models, MCP, and the mount beside the
# server.
# See docs/bench.md.
#
# usage: bench/run.sh [--quick] [--rounds N] [--json FILE]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

stop() {
    printf 'rnixfs: bench: %s\n' "$*" >&2
    exit 1
}

for tool in python gcc pkg-config fusermount3; do
    command -v "$tool" >/dev/null 2>&1 || stop "$tool is missing; run 'make bench', which installs what it needs"
done
pkg-config --exists fuse3 || stop "the headers of libfuse3 are missing; run 'make bench', which installs them"

programs=$(mktemp -d)
trap 'rm -rf -- "$programs"' EXIT
# shellcheck disable=SC2046 # flags are several words
gcc -std=gnu11 -O2 -Wall -Wextra -o "$programs/cserver" "$root/bench/cserver.c" $(pkg-config --cflags --libs fuse3)
gcc -std=gnu11 -O2 -Wall -Wextra -pthread -o "$programs/client" "$root/bench/client.c"

PYTHONPATH=$root python -m bench.many "$@"
langgraph=
case " $* " in
*" --quick "*) ;; # without network
*) langgraph=$(bash "$root/bench/langgraph.sh") ;;
esac
PYTHONPATH=$root python -m bench.log --langgraph "$langgraph" "$@"
PYTHONPATH=$root python -m bench.models "$@"
PYTHONPATH=$root python -m bench.models.cancel "$@"
case " $* " in
*" --quick "*) ;; # without network
*) bash "$root/.ci/mcp-servers.sh" "$(type -P python)" >&2 || echo "rnixfs: bench: going on without MCP servers" >&2 ;;
esac
PYTHONPATH=$root python -m bench.mcp "$@"
PYTHONPATH=$root python -m bench.run --programs "$programs" "$@"
