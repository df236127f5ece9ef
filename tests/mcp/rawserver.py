"""A server of the protocol of 2025 without any library, that behaves as its first argument says.

Well behaved ones are `good` and `plain`; the others each do one thing wrong. What it hears is written into
the file that the variable DIARY names.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

MODE = sys.argv[1]
TOOLS = ["call", "hang", "ask", "think", "slow", "long", "add_tool", "touch", "quit", "refuse", "junk"]
lock = threading.Lock()
answers: dict[int, dict] = {}
answered = threading.Condition()
notes = {"urn:note": "one"} if MODE == "plain" else {"note://a": "one", "note://a/b": "two"}


def note(text: str) -> None:
    """Write into the diary."""
    if path := os.environ.get("DIARY"):
        with open(path, "a") as file:
            file.write(text + "\n")


def send(message: dict) -> None:
    """Send a message."""
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def ask(method: str, params: dict) -> dict:
    """Ask the client, and wait for its answer."""
    number = 1000 + len(answers)
    answers[number] = {}
    send({"id": number, "method": method, "params": params})
    with answered:
        answered.wait_for(lambda: answers[number])
    return answers[number]


def text(words: str) -> dict:
    """The answer of a tool."""
    return {"content": [{"type": "text", "text": words}]}


def progress(params: dict, steps: int) -> dict:
    """Take steps, and say so."""
    for step in range(1, steps + 1):
        time.sleep(params["arguments"].get("seconds", 0))
        token = params.get("_meta", {}).get("progressToken")
        send(
            {
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": step, "total": steps, "message": "on"},
            }
        )
    return text("done")


def call(params: dict) -> dict | None:
    """Do a tool."""
    name, arguments = params["name"], params.get("arguments", {})
    if name == "hang":
        note("hangs")
        return None
    if name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        found = ask("elicitation/create", {"message": "Who?", "requestedSchema": schema})
        return text(json.dumps(found.get("result", found.get("error"))))
    if name == "think":
        message = {"role": "user", "content": {"type": "text", "text": "Think."}}
        found = ask("sampling/createMessage", {"messages": [message], "maxTokens": 9})
        return text(json.dumps(found.get("result", found.get("error"))))
    if name == "slow":
        return progress(params, arguments["steps"])
    if name == "long":
        return text("x" * arguments["size"])
    if name == "add_tool":
        TOOLS.append(arguments["name"])
        send({"method": "notifications/tools/list_changed"})
    if name == "touch":
        notes["note://a"] = arguments["text"]
        send({"method": "notifications/resources/updated", "params": {"uri": "note://a"}})
    if name == "quit":
        sys.stderr.write("told to quit\n")
        sys.stderr.flush()
        os._exit(arguments.get("code", 0))
    if name == "junk":
        send({"id": 4711, "result": {}})
        print("not a message", flush=True)
        print('{"jsonrpc": "2.0", "surprise": true}', flush=True)
    return text(json.dumps(arguments))


def listed(params: dict) -> dict:
    """A page of tools, two a page."""
    start = int(params.get("cursor", 0))
    schema: dict = {"type": "object"}
    if MODE == "plain":
        schema |= {"properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
    page = [{"name": name, "inputSchema": schema} for name in TOOLS[start : start + 2]]
    return {"tools": page} | ({"nextCursor": str(start + 2)} if start + 2 < len(TOOLS) else {})


def answer(method: str, params: dict) -> dict | None:
    """The answer to a request; an error if it has a code."""
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {
                "tools": {"listChanged": True},
                "resources": {"subscribe": True, "listChanged": True},
                **({"prompts": {}} if MODE == "plain" else {}),
            },
            "serverInfo": {"name": "raw", "version": "1"},
        }
    if method == "tools/list":
        return listed(params)
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri} for uri in notes]}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet", "arguments": [{"name": "whom", "required": True}]}]}
    if method == "prompts/get":
        words = {"type": "text", "text": f"Greet {params['arguments']['whom']}."}
        return {"messages": [{"role": "user", "content": words}]}
    if method == "resources/templates/list" and MODE == "plain":
        return {"resourceTemplates": [{"name": "day", "uriTemplate": "urn:day:{n}"}]}
    if method == "resources/read":
        if params["uri"] not in notes:
            return {"code": -32002, "message": "no such note"}
        return {"contents": [{"uri": params["uri"], "text": notes[params["uri"]]}]}
    if method in ("resources/subscribe", "resources/unsubscribe"):
        note(f"{method} {params['uri']}")
        return {}
    if method == "ping":
        return {}
    if method == "tools/call" and params["name"] == "refuse":
        return {"code": -32000, "message": "I will not"}
    if method == "tools/call":
        return call(params)
    return {"code": -32601, "message": f"no method {method}"}


def handle(message: dict) -> None:
    """Take a message."""
    method = message.get("method")
    if method is None:
        with answered:
            answers[message["id"]] = message
            answered.notify_all()
    elif "id" not in message:
        note(method)
    else:
        found = answer(method, message.get("params", {}))
        if MODE == "nonsense" and method != "server/discover":
            found = {"surprise": True}
        if found is not None:
            kind = "error" if "code" in found and "message" in found else "result"
            send({"id": message["id"], kind: found})


def serve() -> None:
    """Take messages until there are no more."""
    for line in sys.stdin:
        threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
    note("end of input")


def main() -> None:
    """Behave."""
    note(f"start {os.getpid()}")
    if MODE == "exit":
        sys.stderr.write("cannot start: no licence\n")
        sys.exit(int(sys.argv[2]))
    if MODE == "silent":
        time.sleep(1000)
    while MODE == "prints":
        print("hello, I am no server")
    while MODE == "endless":
        sys.stdout.write("x" * 65536)
    if MODE == "loud":
        threading.Thread(target=shout, daemon=True).start()
    if MODE == "floods":
        threading.Thread(target=flood, daemon=True).start()
    if MODE == "children":
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        note(f"child {child.pid}")
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve()
    if MODE == "stubborn":
        time.sleep(1000)


def shout() -> None:
    """Say a lot on the standard error."""
    while True:
        sys.stderr.write("loud " * 20 + "\n")


def flood() -> None:
    """Send messages without end."""
    while True:
        send({"method": "notifications/message", "params": {"level": "info", "data": "flood"}})


if __name__ == "__main__":
    main()
