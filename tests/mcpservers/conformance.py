"""The conformance suite of the protocol, as its package brings it."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from tests.daemon import SECONDS, Daemon
from tests.mcpservers import packages

BASELINE = pathlib.Path(__file__).with_name("conformance.yaml")
"""What does not pass, and why."""

# The suite cannot be told a key: all its requests get one here, whatever makes them.
_KEY = """
const { createRequire } = require("node:module");
const { Agent, setGlobalDispatcher } = createRequire(process.argv[1])("undici");
const key = { "x-api-key": process.env.SUITE_KEY };
const entries = (headers) => (typeof headers.entries === "function" ? Object.fromEntries(headers) : headers);
const withKey = (dispatch) => (options, handler) => {
    const given = options.headers ?? {};
    const flat = Array.isArray(given);
    const headers = flat ? [...given, ...Object.entries(key).flat()] : { ...entries(given), ...key };
    return dispatch({ ...options, headers }, handler);
};
setGlobalDispatcher(new Agent().compose(withKey));
"""


class Verdict(NamedTuple):
    """How scenarios went.

    Args:
        status: of the suite: 0 if what failed is what the baseline names.
        passed: the checks that succeeded.
        out: all that was printed.
    """

    status: int
    passed: list[str]
    out: str


def run(daemon: Daemon, place: pathlib.Path, words: list[str], env: Mapping[str, str]) -> Verdict:
    """Run scenarios.

    Args:
        daemon: whose mount is `M` for clients.
        place: a folder for the results.
        words: of the command line.
        env: more of its environment.
    """
    argv = [packages.command("conformance"), *words, "-o", str(place / "results")]
    program = daemon.program(argv, {"NO_COLOR": "1", "NODE_NO_WARNINGS": "1", **env})
    done = program.end(seconds=2 * SECONDS)
    daemon.forget(program)
    found = [check for file in place.rglob("checks.json") for check in json.loads(file.read_text())]
    passed = [check["id"] for check in found if check["status"] == "SUCCESS"]
    return Verdict(done.status, passed, done.out + done.err)


def with_key(place: pathlib.Path, key: str) -> dict[str, str]:
    """The environment of a suite whose requests bring a key."""
    preload = place / "key.cjs"
    preload.write_text(_KEY)
    return {"NODE_OPTIONS": f"--require={preload}", "SUITE_KEY": key, "HOME": os.fspath(place)}
