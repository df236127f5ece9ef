"""The conformance suite of the protocol: our client, which is a mount, and our server, which is the tree.

`conformance.yaml` names what does not pass, and why; the suite itself minds that the list is right.
"""

import json
import pathlib
import sys

import pytest

from tests.daemon import Daemon, running
from tests.mcpservers import conformance
from tests.mcpservers.conformance import BASELINE

KEY = "rnix-key-for-tests-0123456789"

# A client that is a mount, driven from the shell. The suite appends the address of its server.
CLIENT = """
name=${MCP_CONFORMANCE_SCENARIO//\\//-}
server=$M/mnt/mcp/$name
ask() { exec 3<>"$server/tools/$1" && echo "$2" >&3; }
echo "mount $name {\\"url\\": \\"$1\\", \\"allow\\": [\\"elicitation\\"]}" > "$M/mnt/mcp/ctl"
while [[ $(cat "$server/status") == *'"state":"connecting"'* ]]; do sleep 0.1; done
cat "$server/status"
case $MCP_CONFORMANCE_SCENARIO in
    tools_call) ask add_numbers '{"a": 5, "b": 3}' && cat <&3 ;;
    sse-retry) ask test_reconnection '{}' && cat <&3 ;;
    elicitation-*)
        # Answers as a person does who accepts what the form suggests.
        ask test_client_elicitation_defaults '{}'
        until [[ -e $server/questions/1 ]]; do sleep 0.1; done
        form=$(cat "$server/questions/1")
        jq -c '{action: "accept", content: .request.properties.content.properties | map_values(.default)}' \\
            <<<"$form" > "$server/questions/1"
        cat <&3
        ;;
esac
echo "unmount $name" > "$M/mnt/mcp/ctl"
"""


@pytest.mark.timeout(200)
def test_our_client(tmp_path: pathlib.Path) -> None:
    """A mount does what a client must do, by the judgement of the suite."""
    with running(tmp_path) as daemon:
        script = tmp_path / "client.sh"
        script.write_text(CLIENT)
        words = ["client", "--command", f"bash {script}", "--suite", "all"]
        verdict = conformance.run(daemon, tmp_path, [*words, "--expected-failures", str(BASELINE)], {})
        assert verdict.status == 0, verdict.out
        for check in ("mcp-client-initialization", "tool-add-numbers", "client-sse-graceful-reconnect"):
            assert check in verdict.passed, verdict.out
        assert len([check for check in verdict.passed if "elicitation" in check]) == 5, verdict.out


@pytest.mark.timeout(200)
def test_our_server(tmp_path: pathlib.Path) -> None:
    """`rnix mcp-serve` passes all that does not need tools, resources or prompts of the suite's own."""
    with running(tmp_path) as daemon:
        words = ["server", "--url", serving(daemon), "--suite", "all", "--expected-failures", str(BASELINE)]
        verdict = conformance.run(daemon, tmp_path, words, conformance.with_key(tmp_path, KEY))
        assert verdict.status == 0, verdict.out
        for check in (
            "server-initialize",
            "tools-list",
            "resources-list",
            "localhost-host-rebinding-rejected",
        ):
            assert check in verdict.passed, verdict.out


def serving(daemon: Daemon) -> str:
    """Start the server of a mount; its address."""
    argv = [sys.executable, "-P", "-m", "rnixfs.mcpserve", "--mount", str(daemon.mount)]
    options = ["--http", "--port=0", "--key-env=SUITE_KEY", "--json"]
    program = daemon.program([*argv, *options], {"SUITE_KEY": KEY})
    return str(json.loads(program.line())["url"])
