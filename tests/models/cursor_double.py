#!/usr/bin/env python3
"""A program that stands in for Cursor's `agent`: its options, its output and its ways to fail.

Written after the public description of its output and recorded runs; the real one needs Cursor's servers.
What it does is chosen by words of the prompt, since its environment is not the caller's to set.
"""

import argparse
import json
import os
import signal
import sys
import time

FAILURES = {
    "LIMIT": "Error: You've hit your usage limit\n  Upgrade to Pro for more",
    "BUSY": "Error: S: [resource_exhausted] Error",
    "AWAY": "Error: [unavailable] connect ECONNREFUSED 10.0.0.1:443",
    "SLOW": "Error: [deadline_exceeded] the operation timed out",
    "MODEL": "Error: Cannot use this model: gpt-0. Available models: auto",
    "BROKEN": "Error: [internal] internal error",
    "ODD": "Error: something else",
    "LEAK": f"Error: odd key {os.environ.get('CURSOR_API_KEY', '')}",
}
ANSWER = ["Hello", " from", " cursor"]
USAGE = {"inputTokens": 10, "outputTokens": 3, "cacheReadTokens": 20, "cacheWriteTokens": 5}


def options() -> argparse.ArgumentParser:
    """The options that a caller without a terminal needs."""
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("-p", "--print", action="store_true")
    parser.add_argument("--output-format", choices=["text", "json", "stream-json"], default="text")
    parser.add_argument("--stream-partial-output", action="store_true")
    parser.add_argument("--mode", choices=["plan", "ask"])
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("-f", "--force", action="store_true")
    parser.add_argument("--model")
    parser.add_argument("prompt", nargs="?")
    return parser


def say(kind: str, **fields: object) -> None:
    """Print one line, as soon as it is there."""
    print(
        json.dumps({"type": kind, **fields, "session_id": "00000000-0000-4000-8000-000000000000"}), flush=True
    )


def assistant(text: str, **fields: object) -> None:
    """Print a message of the model, or a piece of one."""
    say("assistant", message={"role": "assistant", "content": [{"type": "text", "text": text}]}, **fields)


def tool_call() -> None:
    """Print that a file was to be read, which was denied."""
    call = {"readToolCall": {"args": {"path": "a.txt"}}}
    say("tool_call", subtype="started", call_id="c1", tool_call=call)
    denied = {"readToolCall": call["readToolCall"] | {"result": {"rejected": {"reason": "denied"}}}}
    say("tool_call", subtype="completed", call_id="c1", tool_call=denied)


def stream(prompt: str, model: str, partial: bool) -> None:
    """Print all that comes before the result."""
    say("system", subtype="init", apiKeySource="env", cwd=os.getcwd(), model=model, permissionMode="default")
    say("user", message={"role": "user", "content": [{"type": "text", "text": prompt}]})
    print("Update available: 2099.01.01", flush=True)
    if "THINK" in prompt:
        for piece in ("let me", " see"):
            say("thinking", subtype="delta", text=piece, timestamp_ms=1)
        say("thinking", subtype="completed", text="let me see", timestamp_ms=2)
    if "TOOL" in prompt:
        if partial:
            assistant("I look. ", timestamp_ms=3)
        assistant("I look. ", model_call_id="m1", **({"timestamp_ms": 4} if partial else {}))
        tool_call()
    if partial:
        for piece in ANSWER:
            assistant(piece, timestamp_ms=5)
    if "CUT" in prompt:
        sys.exit("Error: fetch failed: socket hang up")
    if "HANG" in prompt:
        time.sleep(3600)
    whole = "".join(ANSWER)
    assistant("I look. " + whole if partial and "TOOL" in prompt else whole)


def fail(prompt: str) -> None:
    """End as the prompt asks for."""
    for word, text in FAILURES.items():
        if word in prompt:
            sys.exit(text)
    if "KILLED" in prompt:
        os.kill(os.getpid(), signal.SIGKILL)
    if "NOTHING" in prompt:
        sys.exit(0)
    if "GARBAGE" in prompt:
        sys.stdout.buffer.write(b'\xff\xfe{"type": "result", "result": "no"}\n')
        sys.exit(0)
    while "ENDLESS" in prompt:
        print("and on")


def main() -> None:
    """Play one run."""
    if sys.argv[1:] == ["status"]:
        print("Not logged in" if os.environ.get("HOME", "").endswith("logged-out") else "Logged in as a@b.c")
        return
    asked = options().parse_args()
    prompt = asked.prompt if asked.prompt is not None else sys.stdin.read()
    home = os.environ.get("HOME", "/nonexistent")
    if not os.environ.get("CURSOR_API_KEY") and not os.path.exists(f"{home}/.config/cursor/auth.json"):
        sys.exit("Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY.")
    if not (asked.print and asked.trust and asked.mode == "ask"):
        sys.exit("Error: Workspace Trust Required")
    fail(prompt)
    if asked.output_format == "stream-json":
        stream(prompt, asked.model or "Auto", asked.stream_partial_output)
    elif "CUT" in prompt:
        sys.exit("Error: fetch failed: socket hang up")
    elif "HANG" in prompt:
        time.sleep(3600)
    text = ("I look. " if "TOOL" in prompt else "") + "".join(ANSWER)
    if "ECHO" in prompt:
        text = json.dumps(
            {"prompt": prompt, "argv": sys.argv[1:], "files": seen(), "env": sorted(os.environ)}
        )
    usage = {} if "NOUSAGE" in prompt else {"usage": USAGE}
    say("result", subtype="success", is_error=False, duration_ms=1, duration_api_ms=1, result=text, **usage)


def seen() -> dict[str, str]:
    """The files of the folder where it stands."""
    return {
        os.path.relpath(os.path.join(folder, name)): open(os.path.join(folder, name)).read()
        for folder, _, names in os.walk(".")
        for name in names
    }


if __name__ == "__main__":
    if "--help" in sys.argv:
        # The real one tells its options in another form than argparse.
        print("Usage: agent [options] [command] [prompt...]\n\nOptions:")
        for action in options()._actions:
            print(f"  {', '.join(action.option_strings)}    what it is", flush=True)
        print("\nCommands:\n  login    Log in\n  status|whoami    Who is logged in")
    else:
        main()
