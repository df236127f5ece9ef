"""What a client may do with a list, a view, an agent's manifest, or reading only; on a real mount."""

from typing import Any

import pytest

from tests.mcpserve.servelab import UNTIDY, Lab, Server, call, refused, text_of, world

pytestmark = pytest.mark.filterwarnings(UNTIDY)


async def tools_of(client: Any) -> set[str]:
    """The names of the tools that are offered."""
    return {tool.name for tool in (await client.list_tools()).tools}


async def test_reading_only(lab: Lab) -> None:
    """A server for reading offers what reads, and refuses the rest by any name."""
    with lab.serving("--read-only") as server:
        async with server.client() as client:
            assert await tools_of(client) == {"ps", "ls", "read", "wait"}
            assert await text_of(client, "/sys/version")
            assert (await refused(client, "write", path="/dev/shell", text="id"))["code"] == "NOT_FOUND"
            assert (await client.list_prompts()).prompts == []


async def test_a_list_of_paths(lab: Lab) -> None:
    """A client with a list sees that and no more; what it asks for beyond is refused with the list."""
    with lab.serving("--allow=/dev/shell", "--allow=/dev/llm") as server:
        async with server.client() as client:
            assert await tools_of(client) == {"ps", "ls", "read", "wait", "write", "kill"}
            assert (await call(client, "write", path="/dev/shell", text="echo in"))["answer"] == "in\n"
            names = {entry["name"] for entry in (await call(client, "ls", path="/dev"))["entries"]}
            assert names == {"shell", "llm"}
            for path in ("/dev/grep", "/dev/llm/../grep", "/proc/processes", "/sys/config"):
                error = await refused(client, "read", path=path)
                assert (error["code"], error["errno"]) == ("PERMISSION", "EACCES")
                assert "/dev/shell" in error["message"]
            uris = [resource.uri for resource in (await client.list_resources()).resources]
            assert "rnix:///sys/providers" not in uris


async def test_a_list_goes_on_to_what_is_started(lab: Lab, server: Server) -> None:
    """A process that a client with a list starts may use that list, and is all that the client sees."""
    async with server.client() as other:
        foreign = (await call(other, "spawn", intent="wait 600 s foreign", wait=False))["pid"]
        with lab.serving("--allow=/proc/spawn", "--allow=/dev/shell") as limited:
            async with limited.client() as client:
                pid = (await call(client, "spawn", intent="wait 600 s own", wait=False))["pid"]
                assert [row["pid"] for row in (await call(client, "ps"))["processes"]] == [pid]
                granted = await text_of(client, f"/proc/{pid}/caps")
                assert '"granted":["/dev/llm/script","/dev/shell","/proc/spawn"]' in granted
                for tool in ("kill", "wait"):
                    assert (await refused(client, tool, pid=foreign))["code"] == "PERMISSION"
                wrong: list[dict[str, Any]] = [{"allowed_devices": ["/dev/grep"]}, {"cwd": "/"}]
                for more in wrong:
                    error = await refused(client, "spawn", intent="say hi", wait=False, **more)
                    assert error["code"] == "PERMISSION"
                assert (await refused(client, "write", path="/proc/spawn", text="say hi"))[
                    "code"
                ] == "PERMISSION"
                ctl = f"/proc/{pid}/ctl"
                assert (await refused(client, "write", path=ctl, text="grant /dev/grep"))[
                    "code"
                ] == "PERMISSION"
                assert (await refused(client, "read", path=f"/proc/{pid}/root/dev/grep"))[
                    "code"
                ] == "PERMISSION"
                await call(client, "kill", pid=pid, signal="KILL")
        await call(other, "kill", pid=foreign, signal="KILL")


async def test_the_view_of_a_process(lab: Lab, server: Server) -> None:
    """A server with a view has the rights of a process, and starts its children."""
    async with server.client() as other:
        wanted: Any = {
            "intent": "wait 600 s seen",
            "allowed_devices": ["/dev/shell", "/proc/spawn"],
            "wait": False,
        }
        pid = (await call(other, "spawn", **wanted))["pid"]
        with lab.serving(f"--view={pid}") as seen:
            async with seen.client() as client:
                assert (await call(client, "write", path="/dev/shell", text="echo in"))["answer"] == "in\n"
                assert (await refused(client, "read", path="/dev/grep"))["code"] == "PERMISSION"
                assert (await refused(client, "read", path="/../../../../dev/grep"))["code"] == "PERMISSION"
                begun = await call(client, "spawn", intent="wait 600 s child", wait=False)
                child = (await call(other, "read", path=f"/proc/{begun['pid']}/status"))["content"]
                assert f'"ppid":{pid}' in child
                await call(other, "kill", pid=pid, signal="KILL", tree=True)
                await call(other, "wait", pid=pid)


async def test_an_agents_manifest(lab: Lab) -> None:
    """A server for an agent allows what the agent's manifest and skills allow."""
    folder = lab.daemon.folder / "home" / ".config" / "rnix" / "agents" / "narrow"
    folder.mkdir(parents=True)
    manifest = "name: narrow\ndescription: Runs commands.\nallowed_devices: [/dev/shell]\n"
    (folder / "agent.yaml").write_text(manifest)
    (folder / "instructions.md").write_text("Run.\n")
    await lab.until(lambda: "narrow" in lab.daemon.out("ls $M/lib/agents"), "the agent")
    with lab.serving("--agent=narrow") as server:
        async with server.client() as client:
            assert (await call(client, "write", path="/dev/shell", text="echo in"))["answer"] == "in\n"
            assert (await refused(client, "read", path="/dev/glob"))["code"] == "PERMISSION"
            assert "spawn" not in await tools_of(client)


async def test_files_of_the_host(tmp_path: Any) -> None:
    """Files of the host are read by everybody, and written where both the mount and the server allow it."""
    with world(tmp_path, "--fs-write") as lab:
        path = f"/dev/fs{lab.daemon.host}/new.txt"
        with lab.serving() as careful, lab.serving("--fs-write") as free:
            async with careful.client() as client:
                error = await refused(client, "write", path=path, text="no")
                assert (error["code"], error["errno"]) == ("READ_ONLY", "EROFS")
                assert "--fs-write" in error["message"]
            async with free.client() as client:
                assert (await call(client, "write", path=path, text="first, and long"))["bytes"] == 15
                await call(client, "write", path=path, text="then")
                assert await text_of(client, path) == "then"
        assert (lab.daemon.host / "new.txt").read_text() == "then"
