#!/usr/bin/env bash
# Really mount an empty FUSE file system and take it away again; stop with one sentence where that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/env.sh

python=$(bash .ci/pick-python.sh) || stop "no Python from 3.11 on; install python3, then run the same command again."
exec timeout -s KILL 60 "$python" -I .ci/check_fuse.py
