"""What real servers offer, as files: listed, read, called, and refused where a request is wrong."""

import base64
import gzip
import json
import pathlib

import pytest

from tests.mcpservers import packages
from tests.mcpservers.serverlab import Lab, answer, text

TOOLS = {"echo", "get-sum", "get-tiny-image", "get-structured-content", "trigger-long-running-operation"}
PROMPTS = {"simple-prompt", "args-prompt", "resource-prompt", "completable-prompt"}
FEATURES = "demo:/resource/static/document/features.md"


# --- looking ---


def test_a_server_is_a_folder(shared: Lab, everything: str) -> None:
    """Its tools are files with a schema beside each, its prompts are files, its resources a tree."""
    assert shared.names(everything) == ["prompts", "resources", "status", "tools"]
    tools = shared.names(f"{everything}/tools")
    assert set(tools) >= TOOLS
    assert {f"{tool}.json" for tool in TOOLS} <= set(tools)
    assert set(shared.names(f"{everything}/prompts")) >= PROMPTS
    status = shared.status(everything)
    assert (status["name"], status["type"], status["state"]) == (everything, everything, "ready")


def test_a_schema_is_the_servers(shared: Lab, everything: str) -> None:
    """`tools/<tool>.json` is what the server says of the tool."""
    found = shared.json(f"{everything}/tools/get-sum.json")
    assert found["name"] == "get-sum"
    schema = found["inputSchema"]
    assert schema["required"] == ["a", "b"]
    assert schema["properties"]["a"]["type"] == "number"


def test_a_device_describes_itself(shared: Lab, everything: str) -> None:
    """Reading a tool's device that nobody asked shows what it does and what it takes; nothing is called."""
    found = shared.json(f"{everything}/tools/echo")
    assert found["request"]["required"] == ["message"]
    assert found.get("available", True)
    assert found["does"]


def test_looking_at_everything_calls_nothing(shared: Lab, tmp_path: pathlib.Path) -> None:
    """`ls -lR`, `find` and `stat` over a server with tools, prompts and resources make no call of a tool."""
    log = tmp_path / "said"
    with shared.mounted("e", packages.tapped(packages.everything(), log)):
        shared.daemon.out("ls -lR $M/mnt/mcp; find $M/mnt/mcp -type f -exec stat {} + ; du -s $M/mnt/mcp")
        done = shared.daemon.bash("grep -rl nothing-like-this $M/mnt/mcp/e/tools $M/mnt/mcp/e/prompts")
        assert (done.status, done.out, done.err) == (1, "", "")
        said = [json.loads(line) for line in log.read_text().splitlines()]
        methods = {one.get("method", "") for one in said}
        assert "tools/list" in methods
        assert not methods & {"tools/call", "prompts/get"}


# --- calling ---


def test_a_call(shared: Lab, everything: str) -> None:
    """Arguments are written as JSON, what the tool answers is read: one line of JSON with all its content."""
    found = shared.call(f"{everything}/tools/echo", {"message": "hällo\nworld"})
    words = "Echo: hällo\nworld"
    assert found == {"content": [{"type": "text", "text": words}], "text": words}


def test_a_call_by_echo_and_cat(shared: Lab, everything: str) -> None:
    """The answer of a request that was written waits for whoever reads next."""
    path = f"$M/mnt/mcp/{everything}/tools/get-sum"
    out = shared.daemon.out(f'echo \'{{"a": 40, "b": 2}}\' > {path}; jq -r .text {path}')
    assert out == "The sum of 40 and 2 is 42.\n"


def test_a_tool_without_arguments(shared: Lab, everything: str) -> None:
    """An empty object is enough; an image comes back as it was."""
    found = shared.call(f"{everything}/tools/get-tiny-image")
    kinds = [part["type"] for part in found["content"]]
    assert kinds == ["text", "image", "text"]
    image = found["content"][1]
    assert image["mimeType"] == "image/png"
    assert base64.b64decode(image["data"], validate=True).startswith(b"\x89PNG\r\n")


def test_structured_content_is_kept(shared: Lab, everything: str) -> None:
    """What a tool answers as a structure stays one."""
    found = shared.call(f"{everything}/tools/get-structured-content", {"location": "New York"})
    assert found["structured"] == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
    assert json.loads(text(found)) == found["structured"]


def test_annotations_and_links_are_kept(shared: Lab, everything: str) -> None:
    """Links to resources, and for whom a content is meant, come through."""
    found = shared.call(f"{everything}/tools/get-annotated-message", {"messageType": "error"})
    assert found["content"][0]["annotations"]["audience"] == ["user", "assistant"]
    links = shared.call(f"{everything}/tools/get-resource-links", {"count": 2})["content"][1:]
    assert [link["uri"] for link in links] == [
        "demo://resource/dynamic/blob/1",
        "demo://resource/dynamic/text/2",
    ]


# --- mutating ---


def test_a_knowledge_graph_grows_and_shrinks(shared: Lab, tmp_path: pathlib.Path) -> None:
    """What one tool changes, another one and the server's resource show."""
    with shared.mounted("memory", packages.memory(tmp_path / "graph.json")):
        ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
        engine = {"name": "Engine", "entityType": "machine", "observations": []}
        made = shared.call("memory/tools/create_entities", {"entities": [ada, engine]})
        assert made["structured"] == {"entities": [ada, engine]}
        relation = {"from": "Ada", "to": "Engine", "relationType": "programs"}
        shared.call("memory/tools/create_relations", {"relations": [relation]})
        added = {"entityName": "Engine", "contents": ["has a mill"]}
        shared.call("memory/tools/add_observations", {"observations": [added]})
        graph = shared.call("memory/tools/read_graph")["structured"]
        assert [entity["name"] for entity in graph["entities"]] == ["Ada", "Engine"]
        assert graph["relations"] == [relation]
        shared.call("memory/tools/delete_entities", {"entityNames": ["Ada"]})
        found = shared.daemon.out("cat $M/mnt/mcp/memory/resources/memory:/knowledge-graph")
        assert json.loads(found) == {
            "entities": [engine | {"observations": ["has a mill"]}],
            "relations": [],
        }
        assert "has a mill" in (tmp_path / "graph.json").read_text()


def test_files_of_the_host_are_made_and_changed(shared: Lab, tmp_path: pathlib.Path) -> None:
    """The server of files writes, edits and moves below its folder, and nowhere else."""
    root = tmp_path / "root"
    root.mkdir()
    with shared.mounted("files", packages.filesystem(root)):
        poem = root / "poem.txt"
        shared.call("files/tools/write_file", {"path": str(poem), "content": "roses are red\n"})
        edits = [{"oldText": "red", "newText": "blue"}]
        assert "+roses are blue" in shared.say("files/tools/edit_file", {"path": str(poem), "edits": edits})
        shared.call("files/tools/move_file", {"source": str(poem), "destination": str(root / "b.txt")})
        assert [path.name for path in root.iterdir()] == ["b.txt"]
        assert (root / "b.txt").read_text() == "roses are blue\n"
        outside = tmp_path / "secret.txt"
        refused = shared.ask("files/tools/write_file", {"path": str(outside), "content": "x"})
        assert "Access denied" in refused.out
        assert not outside.exists()


def test_a_repository_is_read_and_committed_to(shared: Lab, tmp_path: pathlib.Path) -> None:
    """The server of git shows a change, stages it and commits it; git itself finds the commit."""
    place = packages.repository(tmp_path / "repo")
    with shared.mounted("git", packages.git()):
        here = {"repo_path": str(place)}
        assert "+two" in shared.say("git/tools/git_diff_unstaged", here)
        shared.call("git/tools/git_add", {**here, "files": ["poem.txt"]})
        shared.daemon.out(
            f"git -C {place} config user.name T; git -C {place} config user.email t@example.com"
        )
        shared.call("git/tools/git_commit", {**here, "message": "the second line"})
        assert "the second line" in shared.say("git/tools/git_log", here)
        assert shared.daemon.out(f"git -C {place} log --format=%s") == "the second line\nthe first line\n"


def test_a_server_of_the_newest_protocol(shared: Lab) -> None:
    """The servers in Python speak a later version of the protocol than those in JavaScript."""
    with shared.mounted("time", packages.clock()):
        assert shared.names("time/tools") == [
            "convert_time",
            "convert_time.json",
            "get_current_time",
            "get_current_time.json",
        ]
        wanted = {"source_timezone": "Europe/Paris", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "T19:00:00+09:00" in shared.say(
            "time/tools/convert_time", wanted
        ) or "T20:00:00+09:00" in shared.say("time/tools/convert_time", wanted)


# --- resources and prompts ---


def test_a_resource_is_a_document(shared: Lab, everything: str) -> None:
    """Its name is its address, and reading it gives its text, byte for byte."""
    wanted = packages.document("features.md")
    assert shared.read(f"{everything}/resources/{FEATURES}") == wanted
    assert (
        shared.daemon.out(f"grep -c . $M/mnt/mcp/{everything}/resources/{FEATURES}").strip()
        == f"{sum(1 for line in wanted.splitlines() if line)}"
    )


def test_a_resource_of_a_template(shared: Lab, everything: str) -> None:
    """A resource that is not listed is there under the address that its template gives it; others are not."""
    path = f"{everything}/resources/demo:/resource/dynamic"
    assert shared.read(f"{path}/text/7").startswith("Resource 7: This is a plaintext resource")
    assert shared.bytes(f"{path}/blob/8").startswith(b"Resource 8: This is a base64 blob")
    done = shared.daemon.bash(f"cat $M/mnt/mcp/{everything}/resources/demo:/resource/nowhere/9")
    assert done.status == 1
    assert "No such file" in done.err


def test_a_new_resource_shows_at_once(shared: Lab, everything: str) -> None:
    """A tool that makes a resource makes a file, whose bytes are the resource's; it need not be text."""
    made = {"name": f"{everything}.gz", "data": "data:text/plain,squeeze%20me"}
    link = shared.call(f"{everything}/tools/gzip-file-as-resource", made)["content"][0]
    assert link["uri"] == f"demo://resource/session/{everything}.gz"
    path = f"{everything}/resources/demo:/resource/session"
    shared.await_name(path, f"{everything}.gz")
    assert gzip.decompress(shared.bytes(f"{path}/{everything}.gz")) == b"squeeze me"


def test_a_prompt(shared: Lab, everything: str) -> None:
    """Arguments are written, messages are read."""
    found = shared.call(f"{everything}/prompts/args-prompt", {"city": "Oslo", "state": "Norway"})
    assert found["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "What's weather in Oslo, Norway?"}}
    ]
    simple = shared.call(f"{everything}/prompts/simple-prompt")
    assert simple["messages"][0]["content"]["text"] == "This is a simple prompt without arguments."


def test_a_prompt_with_a_resource_in_it(shared: Lab, everything: str) -> None:
    """What is embedded in a message is kept."""
    wanted = {"resourceType": "Text", "resourceId": "3"}
    embedded = shared.call(f"{everything}/prompts/resource-prompt", wanted)["messages"][1]["content"]
    assert embedded["type"] == "resource"
    assert embedded["resource"]["uri"] == "demo://resource/dynamic/text/3"


# --- what is refused ---


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("get-sum", {"a": 1, "b": "two"}, ["b", "number"]),
        ("get-sum", {"a": 1}, ["b", "required"]),
        ("get-structured-content", {"location": "Atlantis"}, ["location", "New York"]),
        ("get-resource-links", {"count": 11}, ["count", "10"]),
    ],
)
def test_wrong_arguments_are_refused_by_the_write(
    shared: Lab, everything: str, tool: str, arguments: object, words: list[str]
) -> None:
    """`echo` fails with EINVAL, and the reason, with the field and what would be right, can be read."""
    path = f"$M/mnt/mcp/{everything}/tools/{tool}"
    done = shared.daemon.bash(f"echo '{json.dumps(arguments)}' > {path}; echo $?; cat {path}")
    status, _, rest = done.out.partition("\n")
    assert status == "1"
    assert "Invalid argument" in done.err
    error = json.loads(rest)["error"]
    assert error["code"] == "INVALID"
    for word in words:
        assert word in error["message"], error


def test_the_path_of_a_wrong_field_deep_inside(shared: Lab, tmp_path: pathlib.Path) -> None:
    """Where in a list, and in which field of an object, something is wrong is said."""
    with shared.mounted("memory", packages.memory(tmp_path / "graph.json")):
        wrong = {"entities": [{"name": "a", "entityType": "b", "observations": ["c", 5]}]}
        done = shared.ask("memory/tools/create_entities", wrong)
        assert "Invalid argument" in done.err
        path = "$M/mnt/mcp/memory/tools/create_entities"
        done = shared.daemon.bash(f"echo '{json.dumps(wrong)}' > {path}; cat {path}")
        message = json.loads(done.out)["error"]["message"]
        assert "entities[0].observations[1]" in message or "entities/0/observations/1" in message, message
        assert not (tmp_path / "graph.json").exists()


@pytest.mark.parametrize("request_text", ["[1, 2]", '"text"', "{", "just words"])
def test_what_are_no_arguments(shared: Lab, everything: str, request_text: str) -> None:
    """A request that is no JSON object is refused, and what would be right is said."""
    path = f"$M/mnt/mcp/{everything}/tools/echo"
    done = shared.daemon.bash(f"echo '{request_text}' > {path}; cat {path}")
    assert json.loads(done.out)["error"]["code"] == "INVALID"


def test_a_tool_that_fails_is_an_error(shared: Lab, tmp_path: pathlib.Path) -> None:
    """What a tool reports as its own error is an error answer with the tool's words; the next call works."""
    with shared.mounted("git", packages.git()):
        done = shared.ask("git/tools/git_status", {"repo_path": str(tmp_path)})
        found = answer(done)
        assert found["error"]["device"].endswith("/mnt/mcp/git/tools/git_status")
        assert str(tmp_path) in found["error"]["message"]
        place = packages.repository(tmp_path / "repo")
        assert "poem.txt" in shared.say("git/tools/git_status", {"repo_path": str(place)})


def test_a_prompt_without_what_it_needs(shared: Lab, everything: str) -> None:
    """A missing argument of a prompt is refused by the write and named."""
    path = f"$M/mnt/mcp/{everything}/prompts/args-prompt"
    done = shared.daemon.bash(f"echo '{{}}' > {path}; echo $?; cat {path}")
    assert done.out.startswith("1\n")
    assert "city" in json.loads(done.out.partition("\n")[2])["error"]["message"]


def test_names_are_the_servers(shared: Lab, everything: str) -> None:
    """Nothing can be made, removed or renamed in a server's folder."""
    place = f"$M/mnt/mcp/{everything}"
    for script in (f"mkdir {place}/new", f"rm {place}/tools/echo", f"mv {place}/tools/echo {place}/tools/e"):
        done = shared.daemon.bash(script)
        assert done.status == 1, script
        assert "not permitted" in done.err or "denied" in done.err, done.err
    done = shared.daemon.bash(f"cat {place}/tools/no-such-tool")
    assert "No such file" in done.err
