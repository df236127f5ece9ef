"""The layer rule: who may import whom, read from the source of every module.

A new module needs a row in LAYERS; a row whose module is gone must go.
"""

import ast
import pathlib
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rnixfs"
CLI = ROOT / "cli" / "rnixfs_cli"

LAYERS = {
    # 0: the words everybody uses
    "errors": 0,
    "limits": 0,
    "shipped": 0,
    "types": 0,
    # 1: pure: no trio, no input or output
    "action": 1,
    "address": 1,
    "backoff": 1,
    "breaker": 1,
    "calltable": 1,
    "case": 1,
    "casetext": 1,
    "clip": 1,
    "compaction": 1,
    "device": 1,
    "difference": 1,
    "edits": 1,
    "expressions": 1,
    "filters": 1,
    "framing": 1,
    "gateway.asked": 1,
    "gateway.chat": 1,
    "gateway.echoes": 1,
    "gateway.messages": 1,
    "gateway.models": 1,
    "gateway.refusal": 1,
    "gateway.wishes": 1,
    "globs": 1,
    "idempotency": 1,
    "initfile": 1,
    "keycheck": 1,
    "llm": 1,
    "manifest": 1,
    "mcp.content": 1,
    "mcp.sampling": 1,
    "mcp.lines": 1,
    "mcp.names": 1,
    "mcp.schema": 1,
    "mcp.config": 1,
    "mcp.configmerge": 1,
    "mcp.editing": 1,
    "mcp.places": 1,
    "patterns": 1,
    "presets": 1,
    "prices": 1,
    "proc.birth": 1,
    "proc.context": 1,
    "proc.progress": 1,
    "proc.records": 1,
    "proc.request": 1,
    "proc.signals": 1,
    "proc.state": 1,
    "proc.supervision": 1,
    "providermerge": 1,
    "providers": 1,
    "recordedstep": 1,
    "rules": 1,
    "scenario": 1,
    "scene": 1,
    "templates": 1,
    "texttools": 1,
    "traceline": 1,
    "treereadme": 1,
    "windows": 1,
    "wire.anthropic": 1,
    "wire.claude": 1,
    "wire.claudereply": 1,
    "wire.commandhelp": 1,
    "wire.commandreply": 1,
    "wire.count": 1,
    "wire.cursor": 1,
    "wire.dialect": 1,
    "wire.failure": 1,
    "wire.gemini": 1,
    "wire.openai": 1,
    "wire.sse": 1,
    "wire.transcript": 1,
    "yamlread": 1,
    "yamlvalue": 1,
    "yamlwrite": 1,
    # 2: names, opens, and single parts that wait
    "admission": 2,
    "children": 2,
    "commandmodel": 2,
    "commandrunner": 2,
    "configfile": 2,
    "discovery": 2,
    "edge.drain": 2,
    "edge.interrupt": 2,
    "edge.mountpoint": 2,
    "edge.watch": 2,
    "exchange": 2,
    "filetools": 2,
    "grepjob": 2,
    "hostdir": 2,
    "hostfile": 2,
    "hostfind": 2,
    "hostnode": 2,
    "hostpath": 2,
    "hostprogram": 2,
    "hosttable": 2,
    "initsource": 2,
    "keyed": 2,
    "leftovers": 2,
    "libdir": 2,
    "loader": 2,
    "mcp.folder": 2,
    "mcp.questions": 2,
    "mcp.remote": 2,
    "mcp.resources": 2,
    "mcp.session": 2,
    "mcp.streams": 2,
    "mcp.tools": 2,
    "mcp.edit": 2,
    "mcp.shelf": 2,
    "model": 2,
    "modelcall": 2,
    "modeldevice": 2,
    "modelfallback": 2,
    "modelservice": 2,
    "modelshelf": 2,
    "mountfiles": 2,
    "mounts": 2,
    "node": 2,
    "pieces": 2,
    "portowner": 2,
    "proc.board": 2,
    "proc.ipc": 2,
    "queryjob": 2,
    "search": 2,
    "state.archive": 2,
    "state.codec": 2,
    "state.collecting": 2,
    "state.content": 2,
    "state.failures": 2,
    "state.journals": 2,
    "state.lock": 2,
    "state.memory": 2,
    "state.opening": 2,
    "state.pages": 2,
    "state.reading": 2,
    "state.retention": 2,
    "state.salvage": 2,
    "state.schema": 2,
    "state.sqlite": 2,
    "state.store": 2,
    "storeconfig": 2,
    "unusable": 2,
    "vfs": 2,
    # 3: the kernel
    "calls.base": 3,
    "calls.capabilities": 3,
    "calls.context": 3,
    "calls.contexts": 3,
    "calls.files": 3,
    "calls.groups": 3,
    "calls.ipc": 3,
    "calls.mounts": 3,
    "calls.processes": 3,
    "calls.signals": 3,
    "calls.supervisor": 3,
    "calls.threads": 3,
    "caserecord": 3,
    "kernel": 3,
    "proc.capabilities": 3,
    "proc.channels": 3,
    "proc.eventline": 3,
    "proc.files": 3,
    "proc.fold": 3,
    "proc.forks": 3,
    "proc.groupfiles": 3,
    "proc.groups": 3,
    "proc.history": 3,
    "proc.init": 3,
    "proc.ipcfiles": 3,
    "proc.pipes": 3,
    "proc.process": 3,
    "proc.remake": 3,
    "proc.runs": 3,
    "proc.servers": 3,
    "proc.supervisorfiles": 3,
    "proc.threadfiles": 3,
    "proc.threads": 3,
    "proc.traced": 3,
    "proc.view": 3,
    "recording": 3,
    "syscalls": 3,
    "sysdir": 3,
    # 4: devices, user programs, and what puts them together
    "bootstrap": 4,
    "drivers.check": 4,
    "drivers.claude": 4,
    "drivers.cursor": 4,
    "drivers.files": 4,
    "drivers.http": 4,
    "drivers.mcp": 4,
    "drivers.query": 4,
    "drivers.script": 4,
    "drivers.shell": 4,
    "launch": 4,
    "programs.mcptools": 4,
    "programs.narrate": 4,
    "programs.reason": 4,
    "programs.room": 4,
    "programs.supervise": 4,
    "programs.tools": 4,
    "restore": 4,
    # 5: the edges: the host's kernel, the wiring
    "boot": 5,
    "casefile": 5,
    "fuse": 5,
    "gateway.__main__": 5,
    "gateway.app": 5,
    "gateway.client": 5,
    "gateway.keys": 5,
    "gateway.mount": 5,
    "gateway.server": 5,
    "gateway.turn": 5,
    "mcpserve.__main__": 5,
    "mcpserve.answers": 5,
    "mcpserve.documents": 5,
    "mcpserve.files": 5,
    "mcpserve.http": 5,
    "mcpserve.processes": 5,
    "mcpserve.program": 5,
    "mcpserve.rights": 5,
    "mcpserve.server": 5,
    "mcpserve.stdio": 5,
    "mcpserve.tools": 5,
    "mcpserve.tree": 5,
    "mcpserve.watch": 5,
    "recordedtools": 5,
    "relaunch": 5,
    "replay": 5,
    "tape": 5,
}

LAYERS_OF_PEERS = {0, 1, 2, 3}  # modules of these layers may import each other
ASSEMBLERS = {"launch", "bootstrap"}  # of layer 4: they put drivers and programs together
EDGE_PEERS = {  # (who, whom) in layer 5
    ("boot", "fuse"),
    ("casefile", "relaunch"),
    ("gateway.__main__", "gateway.server"),
    ("gateway.app", "gateway.client"),
    ("gateway.app", "gateway.keys"),
    ("gateway.app", "gateway.turn"),
    ("gateway.client", "gateway.mount"),
    ("gateway.server", "gateway.app"),
    ("gateway.server", "gateway.client"),
    ("gateway.server", "gateway.keys"),
    ("gateway.turn", "gateway.client"),
    ("mcpserve.__main__", "mcpserve.program"),
    ("mcpserve.documents", "gateway.mount"),
    ("mcpserve.documents", "mcpserve.files"),
    ("mcpserve.documents", "mcpserve.processes"),
    ("mcpserve.documents", "mcpserve.rights"),
    ("mcpserve.documents", "mcpserve.tree"),
    ("mcpserve.files", "gateway.mount"),
    ("mcpserve.files", "mcpserve.tree"),
    ("mcpserve.http", "gateway.app"),
    ("mcpserve.http", "gateway.keys"),
    ("mcpserve.http", "gateway.server"),
    ("mcpserve.http", "mcpserve.server"),
    ("mcpserve.processes", "gateway.mount"),
    ("mcpserve.processes", "mcpserve.files"),
    ("mcpserve.processes", "mcpserve.rights"),
    ("mcpserve.processes", "mcpserve.tree"),
    ("mcpserve.program", "gateway.keys"),
    ("mcpserve.program", "gateway.mount"),
    ("mcpserve.program", "gateway.server"),
    ("mcpserve.program", "mcpserve.http"),
    ("mcpserve.program", "mcpserve.rights"),
    ("mcpserve.program", "mcpserve.server"),
    ("mcpserve.program", "mcpserve.stdio"),
    ("mcpserve.program", "mcpserve.tree"),
    ("mcpserve.server", "mcpserve.answers"),
    ("mcpserve.server", "mcpserve.documents"),
    ("mcpserve.server", "mcpserve.tools"),
    ("mcpserve.server", "mcpserve.tree"),
    ("mcpserve.server", "mcpserve.watch"),
    ("mcpserve.stdio", "mcpserve.server"),
    ("mcpserve.tools", "mcpserve.answers"),
    ("mcpserve.tools", "mcpserve.files"),
    ("mcpserve.tools", "mcpserve.processes"),
    ("mcpserve.tools", "mcpserve.rights"),
    ("mcpserve.tools", "mcpserve.tree"),
    ("mcpserve.tree", "gateway.mount"),
    ("mcpserve.tree", "mcpserve.rights"),
    ("mcpserve.watch", "gateway.mount"),
    ("mcpserve.watch", "mcpserve.files"),
    ("mcpserve.watch", "mcpserve.tree"),
    ("replay", "relaunch"),
    ("replay", "tape"),
    ("tape", "recordedtools"),
}

ONLY_AT_THE_EDGE = {"pyfuse3"}
NOT_IN_PURE = {"trio", "socket", "subprocess", "asyncio", "threading", "pyfuse3", "httpx2"}
CLI_MAY = {"click", "rnixfs_cli"}


def name_of(file: pathlib.Path) -> str:
    """A module's name below rnixfs: `proc.state` for rnixfs/proc/state.py."""
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts)


def modules() -> dict[str, pathlib.Path]:
    """Every module of rnixfs by name, but for the files that only make a folder a package."""
    return {name_of(file): file for file in sorted(PACKAGE.rglob("*.py")) if file.name != "__init__.py"}


MODULES = modules()


def imports(file: pathlib.Path) -> Iterator[tuple[str, int]]:
    """The modules that a file imports, wherever in it, with their lines; `from a import b` gives `a.b`."""
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: import by the full name, not a relative one"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def top(imported: str) -> str:
    """The package that an import names."""
    return imported.partition(".")[0]


def own(imported: str) -> str:
    """The module of rnixfs that an import names; empty if it is somebody else's or the package itself."""
    package, _, rest = imported.partition(".")
    if package != "rnixfs":
        return ""
    if rest in MODULES:
        return rest
    parent = rest.rpartition(".")[0]
    return parent if parent in MODULES else ""


def may_import(who: str, whom: str) -> bool:
    """Whether the layers, and the three rules inside them, let one module import another."""
    above, below = LAYERS[who], LAYERS[whom]
    if who.startswith("drivers.") and (whom == "kernel" or whom.startswith("drivers.")):
        return False
    if who.startswith("programs."):
        return whom == "syscalls" or below <= 2 or whom.startswith("programs.")
    if above == below:
        return above in LAYERS_OF_PEERS or who in ASSEMBLERS or (who, whom) in EDGE_PEERS
    return below < above


def test_every_module_has_a_row_and_every_row_a_module():
    """The table is complete, and holds nothing that is gone."""
    without_row = [f'    "{name}": ?,' for name in MODULES if name not in LAYERS]
    without_module = [f'    "{name}": {layer},' for name, layer in LAYERS.items() if name not in MODULES]
    assert without_row == [], "add these rows to LAYERS:\n" + "\n".join(without_row)
    assert without_module == [], "remove these rows from LAYERS:\n" + "\n".join(without_module)


def test_package_files_import_only_the_standard_library():
    """What makes a folder a package loads no other module, so that importing one part never loads all."""
    for file in PACKAGE.rglob("__init__.py"):
        foreign = [imported for imported, _ in imports(file) if top(imported) not in sys.stdlib_module_names]
        assert foreign == [], f"{file} imports {foreign}"


@pytest.mark.parametrize("who", MODULES)
def test_a_module_imports_only_what_lies_below_it(who):
    """Imports go down, sideways only where the table says so; drivers and programs have their own rules."""
    for imported, line in imports(MODULES[who]):
        whom = own(imported)
        # Another test names the modules without a row.
        if whom != who and who in LAYERS and whom in LAYERS:
            levels = f"{who} (layer {LAYERS[who]}) imports {whom} (layer {LAYERS[whom]})"
            assert may_import(who, whom), f"{MODULES[who]}:{line}: {levels}"


@pytest.mark.parametrize("who", MODULES)
def test_only_the_edge_knows_of_fuse(who):
    """pyfuse3 is imported by fuse and by the modules below edge/, by nobody else."""
    if who == "fuse" or who.startswith("edge."):
        return
    for imported, line in imports(MODULES[who]):
        assert top(imported) not in ONLY_AT_THE_EDGE, f"{MODULES[who]}:{line}: imports {imported}"


@pytest.mark.parametrize("who", [name for name, layer in LAYERS.items() if layer <= 1 and name in MODULES])
def test_the_two_lowest_layers_neither_wait_nor_reach_out(who):
    """Layers 0 and 1 import nothing that waits, talks to other programs or starts them."""
    for imported, line in imports(MODULES[who]):
        assert top(imported) not in NOT_IN_PURE, f"{MODULES[who]}:{line}: imports {imported}"


@pytest.mark.parametrize("file", sorted(CLI.rglob("*.py")), ids=lambda file: file.stem)
def test_the_command_imports_only_the_standard_library_and_click(file):
    """`rnix` starts fast, and is a client of the files of the mount like any other program."""
    for imported, line in imports(file):
        assert top(imported) in sys.stdlib_module_names | CLI_MAY, f"{file}:{line}: imports {imported}"


def test_the_rule_can_say_no(monkeypatch):
    """The checks above refuse what they are there to refuse."""
    extra = {"kernel": 3, "syscalls": 3, "boot": 5, "fuse": 5}
    extra |= {"drivers.a": 4, "drivers.b": 4, "programs.p": 4}
    monkeypatch.setattr(sys.modules[__name__], "LAYERS", LAYERS | extra)
    refused = [
        ("types", "node"),
        ("kernel", "drivers.a"),
        ("drivers.a", "drivers.b"),
        ("drivers.a", "kernel"),
        ("programs.p", "kernel"),
        ("programs.p", "drivers.a"),
        ("fuse", "boot"),
    ]
    allowed = [("drivers.a", "node"), ("programs.p", "syscalls"), ("boot", "fuse"), ("kernel", "syscalls")]
    assert [pair for pair in refused if may_import(*pair)] == []
    assert [pair for pair in allowed if not may_import(*pair)] == []
