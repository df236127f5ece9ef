"""An MCP server in a few lines, without a library: `python plainserver.py [fail]`.

It has the tool `shout`, and tells its variable SECRET when asked by `reveal`.
"""

import json
import os
import sys

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "shout", "description": "Says it loudly.", "inputSchema": TEXT},
    {"name": "reveal", "description": "Tells a variable.", "inputSchema": {"type": "object"}},
]


def answer(method: str, params: dict) -> dict | None:
    """The result of a request; None for a method that it does not have."""
    if method == "initialize":
        about = {"name": "plain", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": about,
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "ping":
        return {}
    if method != "tools/call":
        return None
    said = params["arguments"].get("text", os.environ.get("SECRET", "")).upper()
    return {"content": [{"type": "text", "text": said}]}


if "fail" in sys.argv:
    sys.exit("plainserver: it was told to fail")
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    shown = (
        {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
    )
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **shown}), flush=True)
