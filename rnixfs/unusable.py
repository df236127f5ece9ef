"""The file of a provider while the configuration is wrong: it says so, and where."""

from rnixfs.device import Body, Description, Job
from rnixfs.errors import invalid
from rnixfs.types import Caller


class Unusable:
    """A device that refuses every request. Implements `device.Device`.

    Args:
        path: its name in the tree.
        reason: what is wrong, with the file and the line.
    """

    def __init__(self, path: str, reason: str) -> None:
        self._path = path
        self._reason = reason

    def describe(self, caller: Caller) -> Description:
        """What it is, and why it cannot be used."""
        return Description(
            device=self._path,
            does="Asks a language model, once the configuration of providers is right.",
            request={},
            example={"intent": "say hello"},
            available=False,
            reason=self._reason,
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        """Refuse.

        Raises:
            SyscallError: INVALID with the reason.
        """
        raise invalid(self._reason)
