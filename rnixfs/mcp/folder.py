"""The folder of a server below `mnt/mcp`."""

from rnixfs.mcp.questions import Questions
from rnixfs.mcp.remote import Remote
from rnixfs.mcp.resources import ResourceDir, ResourceTree
from rnixfs.mcp.tools import CheckOf, ListedDir, PromptDevice, ToolDevice
from rnixfs.node import Dir, FixedDir


class ServerFolder:
    """What a server shows; the same from its first connection to its last.

    Args:
        remote: the server.
        check_of: makes the check of arguments by their schema.
    """

    def __init__(self, remote: Remote, check_of: CheckOf) -> None:
        self.questions = Questions(remote, check_of)
        children: dict[str, Dir] = {
            "tools": ListedDir(
                remote,
                "tools",
                lambda name, path: ToolDevice(remote, name, path, check_of),
                defined=True,
            ),
            "resources": ResourceDir(ResourceTree(remote)),
            "prompts": ListedDir(
                remote, "prompts", lambda name, path: PromptDevice(remote, name, path), defined=False
            ),
        }
        if "elicitation" in remote.config.allow:
            children["questions"] = self.questions
        self.root = FixedDir(("mcp", remote.key), {**children})
