"""`mcp.yaml`: what is taken, what is refused and how, whose entries count, and how the file is changed."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.mcp import edit
from rnixfs.mcp.config import ServerConfig, parse_mcp, read_config
from rnixfs.mcp.configmerge import merge, restrict_project
from rnixfs.mcp.editing import add, remove
from rnixfs.yamlread import ManifestError
from tests.config.shelves import Shelves, write

WHOLE = """\
version: 1
servers:
  - name: time
    command: uvx
    args: [mcp-server-time, --local-timezone, UTC, 8080, ""]
    env: {TOKEN: "${TIME_TOKEN}", LEVEL: 3, EMPTY: ""}
    cwd: /srv/work
    connect_ms: 5000
    request_ms: 1000
    output_bytes: 65536
    restart: on-failure
    allow: [elicitation, sampling]
    autostart: true
  - name: web
    url: https://example.org/mcp?x=1
    headers: {Authorization: "Bearer ${WEB_TOKEN}"}
"""

TIME = ServerConfig(
    "time",
    "uvx",
    ("mcp-server-time", "--local-timezone", "UTC", "8080", ""),
    {"TOKEN": "${TIME_TOKEN}", "LEVEL": "3", "EMPTY": ""},
    "/srv/work",
    connect_ms=5000,
    request_ms=1000,
    output_bytes=65536,
    restart="on-failure",
    allow=("elicitation", "sampling"),
    autostart=True,
)
WEB = ServerConfig("web", url="https://example.org/mcp?x=1", headers={"Authorization": "Bearer ${WEB_TOKEN}"})


# --- reading ---


def test_every_field_is_read():
    """As it is written; numbers among arguments and variables are text."""
    file = parse_mcp(WHOLE, "m.yaml")
    assert file.servers == (TIME, WEB)
    assert file.at == {"time": "m.yaml:3", "web": "m.yaml:14"}
    assert (TIME.kind, WEB.kind) == ("stdio", "http")


@pytest.mark.parametrize("key", ["servers", "mcpServers"])
def test_servers_may_stand_under_their_names(key):
    """As other tools write it, in YAML or in JSON, with a type or without."""
    block = f"{key}:\n  time:\n    type: stdio\n    command: uvx\n    args: [x]\n"
    flow = json.dumps({key: {"time": {"command": "uvx", "args": ["x"]}}})
    for text in (block, flow):
        assert parse_mcp(text, "m.yaml").servers == (ServerConfig("time", "uvx", ("x",)),)


@pytest.mark.parametrize("text", ["", "# nothing\n", "version: 1\n", "servers:\n", "servers: []\n"])
def test_a_file_may_name_no_servers(text):
    """Empty is not wrong."""
    assert parse_mcp(text, "m.yaml").servers == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 2\n", "m.yaml:1: version is 2; this release knows version 1"),
        ("version: 0\n", "m.yaml:1: version is 0; write 1"),
        ("\nproviders: []\n", "m.yaml:2: providers is not a field here; models belong into providers.yaml"),
        ("servers: 3\n", "m.yaml:1: servers is a whole number; write a list of servers"),
        ("servers: []\nmcpServers: {}\n", "m.yaml:2: mcpServers says what servers says too"),
        ("servers:\n  - command: x\n", "m.yaml:2: servers[1].name is missing"),
        ("servers:\n  - {name: a b, command: x}\n", "m.yaml:2: servers[1].name is 'a b'; write a name of"),
        ("servers:\n  - {name: 7-a, command: x}\n", "does not begin with a number and -"),
        ("servers:\n  - {name: a, comand: x}\n", "comand is not a field here; the fields are"),
        ("servers:\n  - {name: a, comand: x}\n", "(did you mean command?)"),
        ("servers:\n  - {name: a, timeout: 3}\n", "write request_ms or connect_ms, in milliseconds"),
        ("servers:\n  - name: a\n", "m.yaml:2: servers[1].command is missing; add command: the program"),
        (
            "servers:\n  - name: a\n    command: x\n    url: http://h/\n",
            "m.yaml:4: servers[1].url stands beside",
        ),
        ("servers:\n  - {name: a, url: ftp://h}\n", "url is not an address of HTTP"),
        ("servers:\n  - {name: a, url: 'http://u:p@h/'}\n", "url holds a user name or password"),
        ("servers:\n  - {name: a, url: 'http://h/#x'}\n", "url goes on after a #"),
        ("servers:\n  - {name: a, url: http://h, args: [x]}\n", "args means nothing beside url; remove it"),
        ("servers:\n  - {name: a, command: x, headers: {A: b}}\n", "headers means nothing beside command"),
        ("servers:\n  - {name: a, command: x, type: http}\n", "type is http beside command; leave type out"),
        ("servers:\n  - {name: a, url: http://h, type: sse}\n", "type is sse, which is not supported"),
        ("servers:\n  - {name: a, command: x, restart: alway}\n", "(did you mean always?)"),
        (
            "servers:\n  - {name: a, command: x, allow: [roots]}\n",
            "allow holds 'roots'; write elicitation or",
        ),
        ("servers:\n  - {name: a, command: x, cwd: here}\n", "cwd is 'here'; write an absolute path"),
        ("servers:\n  - {name: a, command: x, args: [[y]]}\n", "args[1] is a list; write text, in quotes"),
        (
            "servers:\n  - {name: a, command: x, args: ['${a b}']}\n",
            "args[1] holds a reference to no variable",
        ),
        ("servers:\n  - {name: a, command: x, env: {A-B: c}}\n", "env.A-B is not the name of a variable"),
        ("servers:\n  - {name: a, command: x, env: {A: [c]}}\n", "env.A is a list; write text"),
        (
            "servers:\n  - {name: a, command: x, connect_ms: 0}\n",
            "connect_ms is 0; write a whole number from 1",
        ),
        ("servers:\n  - {name: a, command: x, autostart: yes}\n", "autostart is text; write true or false"),
        (
            "servers:\n  - {name: a, command: x}\n  - {name: a, command: y}\n",
            "m.yaml:3: servers[2].name 'a' is",
        ),
        ("servers:\n  a: {command: x}\n  b: 3\n", "m.yaml:3: servers.b is a whole number; write its fields"),
        ("servers:\n  a: {name: b, command: x}\n", "servers.a.name is the key itself; remove it"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, words):
    """And with what would be right."""
    with pytest.raises(ManifestError) as caught:
        parse_mcp(text, "m.yaml")
    assert words in str(caught.value)


SECRET = "sk-abcdefghijklmnop1234"


@pytest.mark.parametrize(
    "entry",
    [
        f"command: x\n    args: [--key, {SECRET}]",
        f"command: x\n    env: {{A: {SECRET}}}",
        f"url: http://h/\n    headers: {{A: {SECRET}}}",
        f"url: http://h/?k={SECRET}",
        "command: x\n    env: {GITHUB_TOKEN: hunter2}",
        "command: x\n    env: {DB_PASSWORD: hunter2}",
        "url: http://h/\n    headers: {Authorization: hunter2}",
        "url: http://h/\n    headers: {x-api-key: hunter2}",
    ],
)
def test_secrets_are_refused_and_never_repeated(entry):
    """The remedy is a variable of the daemon."""
    with pytest.raises(ManifestError) as caught:
        parse_mcp(f"servers:\n  - name: a\n    {entry}\n", "m.yaml")
    said = str(caught.value)
    assert "write ${VARIABLE} in its place" in said
    assert "hunter2" not in said
    assert SECRET not in said


# --- JSON ---


def test_the_control_file_takes_the_same_fields():
    """Without a name; and it refuses the same."""
    found = read_config("probe", {"command": "x", "args": ["a"], "env": {"A": "b"}, "type": "stdio"})
    assert found == ServerConfig("probe", "x", ("a",), {"A": "b"})
    assert read_config("probe", TIME.mounting() | {"type": "stdio"}).args == TIME.args
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "command is missing"),
        ({"command": 3}, "command is a whole number; write the program's name"),
        ({"url": "http://h", "wrong": 1}, "wrong is not a field here"),
        ({"command": "x", "autostart": True}, "autostart is not a field here"),
        ({"command": "x", "env": "A=b"}, "env is text"),
    ]
    for wrong, words in cases:
        with pytest.raises(SyscallError, match=words) as caught:
            read_config("probe", wrong)
        assert caught.value.code is Code.INVALID


def test_variables_are_filled_in_from_the_daemons():
    """In arguments, variables and headers; one that is not set is named."""
    filled = WEB.filled({"WEB_TOKEN": "abc"})
    assert filled.headers == {"Authorization": "Bearer abc"}
    assert ServerConfig("a", "x", ("-${A}${B}",)).filled({"A": "1", "B": "${A}"}).args == ("-1${A}",)
    with pytest.raises(SyscallError, match=r"'time' needs \$TIME_TOKEN, not set in the daemon's"):
        TIME.filled({})


# --- merging and trust ---


def test_an_entry_takes_the_place_of_the_whole_other():
    """Not field by field."""
    one = parse_mcp(WHOLE, "user.yaml")
    other = parse_mcp("servers:\n  - {name: web, url: http://localhost:9/mcp}\n", "project.yaml")
    merged = merge(one, other)
    assert merged.names() == ("time", "web")
    assert merged.named("web") == ServerConfig("web", url="http://localhost:9/mcp")
    assert merged.at == {"time": "user.yaml:3", "web": "project.yaml:2"}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("command: x", "starts a program"),
        ("url: https://example.org/mcp", "reaches another machine (example.org)"),
        ("url: http://127.0.0.1.example.org/", "reaches another machine"),
        ("url: http://localhost/, headers: {A: '${HOME}'}", "sends $HOME"),
        ("url: http://localhost/, allow: [sampling]", "allows sampling"),
    ],
)
def test_a_project_may_not_do_what_its_user_did_not_allow(entry, why):
    """The warning says what it was and how to allow it; a trusted project may."""
    file = parse_mcp(f"servers:\n  - {{name: a, {entry}}}\n", "p.yaml")
    kept, warnings = restrict_project(file, "p.yaml")
    assert kept.servers == ()
    assert why in warnings[0]
    assert "RNIX_TRUSTED" in warnings[0]
    assert restrict_project(file, "p.yaml", trusted=True) == (file, ())


def test_nothing_of_a_project_starts_by_itself():
    """Whether it is trusted or not."""
    file = parse_mcp("servers:\n  - {name: a, url: 'http://[::1]:3/', autostart: true}\n", "p.yaml")
    for trusted in (False, True):
        kept, warnings = restrict_project(file, "p.yaml", trusted=trusted)
        assert not kept.servers[0].autostart
        assert "counts in the global mcp.yaml only" in warnings[0]


# --- in folders ---


@pytest.fixture
def shelves(tmp_path):
    return Shelves.below(tmp_path)


def test_the_project_counts_over_the_user(shelves):
    """Within what it may; what it may not does not hide the user's."""
    write(shelves.user / "mcp.yaml", "servers:\n  a: {command: mine}\n  b: {command: mine}\n")
    project = "servers:\n  a: {command: theirs}\n  b: {url: 'http://localhost:9/'}\n"
    write(shelves.project / "mcp.yaml", project)
    shelf = shelves.library().for_cwd(shelves.cwd)
    servers, warnings = shelf.servers()
    assert servers.named("a").command == "mine"
    assert servers.named("b").url == "http://localhost:9/"
    assert len(warnings) == 1
    trusting = shelves.library(shelves.project.parent).for_cwd(shelves.cwd)
    assert trusting.server("a").command == "theirs"


def test_a_name_that_is_not_there_names_those_that_are(shelves):
    """And why one of that name is not used."""
    write(shelves.user / "mcp.yaml", "servers:\n  time: {command: x}\n")
    write(shelves.project / "mcp.yaml", "servers:\n  git: {command: x}\n")
    shelf = shelves.library().for_cwd(shelves.cwd)
    with pytest.raises(SyscallError) as caught:
        shelf.server("tine")
    assert caught.value.code is Code.NOT_FOUND
    assert "no MCP server 'tine'; there are: time (did you mean time?)" in caught.value.reason
    with pytest.raises(SyscallError, match="'git' is not used because it starts a program"):
        shelf.server("git")


def test_half_a_line_stops_nobodys_work(shelves):
    """A file that has become wrong counts as it was, with a warning; one that never was right is refused."""
    path = write(shelves.user / "mcp.yaml", "servers:\n  time: {command: x}\n")
    shelf = shelves.library().for_cwd(shelves.cwd)
    assert shelf.server("time").command == "x"
    write(path, "servers:\n  time: {comm\n")
    servers, warnings = shelf.servers()
    assert servers.names() == ("time",)
    assert "until then the file counts as it was before" in warnings[0]
    fresh = shelves.library().for_cwd(shelves.cwd)
    with pytest.raises(SyscallError, match=r"mcp\.yaml:"):
        fresh.servers()
    assert fresh.servers_shown()[0].servers == ()
    assert "mcp.yaml" in fresh.servers_shown()[1][0]


# --- changing the file ---

NEW = ServerConfig("new", "uvx", ("a", "b c", '"'), {"K": "${X}"}, autostart=True)
FILES = {
    "none": "",
    "no servers": "version: 1\n",
    "comments": "# top\nservers: # here\n  # first\n  - name: a\n    command: x  # why\n  # tail\n\n# end\n",
    "below": "servers:\n- name: a\n  command: x\n-\n  name: b\n  command: y\nversion: 1\n",
    "no end": "servers:\n  - name: a\n    command: x",
    "names": "mcpServers:\n  a:\n    command: x\n    # c\n  b: {command: y}\nversion: 1\n",
    "json": '{"mcpServers": {"a": {"command": "x"}}}',
    "brackets": "servers: [{name: a, command: x}]\n# c\n",
    "nothing yet": "servers:\nversion: 1\n",
    "no list yet": "servers: []\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_adding_and_removing_leave_the_rest(text):
    """Each server that was there stays; what was added can be removed, and then it is as before."""
    before = parse_mcp(text, "m").servers
    more = add(text, "m", NEW)
    assert parse_mcp(more, "m").servers == (*before, NEW)
    assert parse_mcp(remove(more, "m", "new"), "m").servers == before
    for one in before:
        left = parse_mcp(remove(more, "m", one.name), "m").servers
        assert left == (*(other for other in before if other is not one), NEW)


@pytest.mark.parametrize("name", ["comments", "below", "names", "no servers"])
def test_comments_and_lines_of_others_stay(name):
    """Adding takes no line away; and removing what was added leaves the very same text."""
    text = FILES[name]
    more = add(text, "m", NEW)
    lines = iter(more.splitlines())
    assert all(line in lines for line in text.splitlines()), "in the same order"
    if name != "no servers":
        assert remove(more, "m", "new") == text


def test_what_cannot_be_added_or_removed():
    """A name that is there, one that is not, and a file that is wrong."""
    text = FILES["below"]
    with pytest.raises(SyscallError, match="m:2 has a server 'a' already") as caught:
        add(text, "m", ServerConfig("a", "x"))
    assert caught.value.code is Code.EXISTS
    with pytest.raises(SyscallError, match=r"no server 'c'; it has: a, b") as caught:
        remove(text, "m", "c")
    assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(SyscallError, match="m:1: servers is a whole number"):
        add("servers: 3\n", "m", NEW)


def test_the_file_is_the_users_alone_and_replaced_as_a_whole(tmp_path):
    """Whatever mode it had; a failure leaves it as it was, and nothing beside it."""
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = Path(edit.change("add", "a", {"command": "x", "args": ["y"]}, env)["file"])
    assert path == tmp_path / "rnix" / "mcp.yaml"
    path.chmod(0o644)
    edit.change("add", "b", {"url": "http://h/"}, env)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("add", "c", {"command": 3}),
        ("remove", "d", {}),
        ("add", "a", {"command": "x"}),
    ]
    for action, name, entry in changes:
        with pytest.raises(SyscallError):
            edit.change(action, name, entry, env)
    assert path.read_text() == before
    assert [one.name for one in path.parent.iterdir()] == ["mcp.yaml"]
    edit.change("remove", "a", {}, env)
    assert parse_mcp(path.read_text(), "m").names() == ("b",)
