#!/usr/bin/env bash
# Print the Python that .venv is made from; exit 1 without a word where there is none.
#
# It must be 3.11 or newer, and able to make a virtual environment and to compile pyfuse3 (Python.h), or be
# the system's own, to which packages can add both. $PYTHON, if set, is looked at first.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/env.sh

probe='
import importlib.util, os, sys, sysconfig
new = sys.version_info >= (3, 11)
header = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
whole = header and importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv")
system = os.path.dirname(os.path.realpath(sys.executable)) == "/usr/bin"
sys.exit(0 if new and (whole or system) else 1)
'

for name in ${PYTHON:+"$PYTHON"} python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do
    found=$(command -v "$name") || continue
    if "$found" -I -c "$probe" >/dev/null 2>&1 </dev/null; then
        # Version managers put scripts into PATH that choose anew in each folder: ask for the program itself.
        exec "$found" -I -c 'import sys; print(sys.executable)'
    fi
done
exit 1
