"""The files of a process that carry messages: `mailbox` and `recv`."""

import dataclasses
import os
from typing import TYPE_CHECKING

from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import SyscallError, denied
from rnixfs.exchange import Answer, DeviceNode, Mailbox
from rnixfs.node import File, Node, Snapshot, StreamNode, wants_read
from rnixfs.proc.ipc import ReceiveFile
from rnixfs.proc.process import Process
from rnixfs.types import Caller

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


class MessageDevice:
    """Takes what is written as a message to a process; the answer is the message's number.

    Args:
        kernel: carries the message.
        process: gets it.
    """

    def __init__(self, kernel: "Kernel", process: Process) -> None:
        self.kernel = kernel
        self.process = process

    def describe(self, caller: Caller) -> Description:
        return Description(
            device=f"/proc/{self.process.pid}/mailbox",
            does="Sends what is written, text or a JSON object, to the process. Reading shows what waits.",
            request={"type": "object"},
            example={"task": "count the files", "priority": 1},
            available=self.process.live,
            reason="" if self.process.live else "the process has ended",
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        message = self.kernel.channels.send(caller.agent, self.process, body)

        async def job(sink: Sink) -> None:
            sink.write(json_line({"seq": message.seq, "to": message.to}))

        return job

    def waiting(self) -> bytes:
        """The messages that nobody has taken yet, a line of JSON each."""
        return self.kernel.channels.queue(self.process).lines()


class _Refusal(Answer):
    """The answer to a message that was not sent."""


@dataclasses.dataclass(frozen=True)
class MailboxNode(DeviceNode):
    """The name of a mailbox: a device where reading shows the queue, and takes nothing from it.

    Args:
        messages: the device.
    """

    messages: MessageDevice = dataclasses.field(compare=False, kw_only=True)

    def open(self, caller: Caller, flags: int) -> File:
        if wants_read(flags):
            _check_reader(self.messages.process, caller)
        return super().open(caller, flags)

    def description(self, caller: Caller) -> Snapshot:
        return Snapshot(self.messages.waiting())

    def refused(self, caller: Caller, error: SyscallError) -> Answer:
        error.at(syscall="Write", device=self.path, pid=caller.agent)
        refusal = _Refusal(self.path, caller.agent)
        refusal.fail(error)
        return refusal

    def _reader(self, box: Mailbox, caller: Caller, flags: int) -> File:
        if not flags & os.O_NONBLOCK:
            box.finish_text()
        # A text that was refused at close has no other way to tell its writer.
        refusal = bytes(box.answer.data) if isinstance(box.answer, _Refusal) else b""
        return Snapshot(refusal + self.messages.waiting())


def _check_reader(process: Process, caller: Caller) -> None:
    if caller.agent and not process.descends_from(caller.agent):
        raise denied(f"process {caller.agent} may not read messages to process {process.pid}")


def mailbox(kernel: "Kernel", process: Process) -> Node:
    """`proc/<pid>/mailbox`: write sends to the process, read shows what waits for it."""
    path = f"/proc/{process.pid}/mailbox"
    device = MessageDevice(kernel, process)
    return MailboxNode((process.uuid, "mailbox"), path, device, kernel.start, messages=device)


def receiving(kernel: "Kernel", process: Process) -> Node:
    """`proc/<pid>/.live/recv`: each read takes the next message, waiting for it."""

    def join(caller: Caller) -> File:
        _check_reader(process, caller)
        return ReceiveFile(kernel.channels.receiver(process))

    return StreamNode((process.uuid, "live", "recv"), join)
