"""System calls on context spaces: the conversation of the process, and others that it keeps beside it."""

import trio

from rnixfs import limits
from rnixfs.calls.base import Calls
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import Message
from rnixfs.proc.context import Context

MAIN = 1
"""Number of the context that the process's own model is shown. It is there from the start to the end."""


class ContextSpaceCalls(Calls):
    """CtxAlloc, CtxRead, CtxWrite, CtxFree."""

    def _context(self, cid: int) -> Context:
        try:
            return self._process.contexts[cid]
        except KeyError:
            raise SyscallError(Code.NOT_FOUND, f"no context {cid}; there are: {self._numbers()}") from None

    def _numbers(self) -> str:
        return ", ".join(map(str, self._process.contexts))

    async def ctx_alloc(self, size: int = limits.CONTEXT_MESSAGES_MAX) -> int:
        """Make a context for `size` messages; returns its number.

        Raises:
            SyscallError: INVALID for a size below 1, RESOURCE_EXHAUSTED past `limits.CONTEXTS_MAX`.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CtxAlloc", size=size) as outcome:
            if not 1 <= size <= limits.CONTEXT_MESSAGES_MAX:
                raise invalid(f"size is {size}; it must be 1 to {limits.CONTEXT_MESSAGES_MAX} messages")
            if len(self._process.contexts) >= limits.CONTEXTS_MAX:
                raise SyscallError(
                    Code.RESOURCE_EXHAUSTED, f"a process may have {limits.CONTEXTS_MAX} contexts; free one"
                )
            cid = self._process.next_context
            self._process.next_context += 1
            self._process.contexts[cid] = Context(max_messages=size)
            outcome.append(f"CTX({cid})")
        return cid

    async def ctx_read(self, cid: int = MAIN, offset: int = 0, length: int = 0) -> tuple[str, list[Message]]:
        """The system prompt and messages of a context.

        Args:
            cid: its number.
            offset: number of the first message, from 1; 0 for all.
            length: how many.

        Raises:
            SyscallError: NOT_FOUND, INVALID for negative numbers.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CtxRead", cid=cid, offset=offset, length=length) as outcome:
            context = self._context(cid)
            messages = context.read(offset, length)
            outcome.append(f"{len(messages)} messages")
        return context.system_prompt, messages

    async def ctx_write(self, message: Message, offset: int = 0, cid: int = MAIN) -> int:
        """Append a message (offset 0) or put it in the place of message `offset`; returns its number.

        Raises:
            SyscallError: NOT_FOUND, INVALID for an offset that is no message's, RESOURCE_EXHAUSTED when full.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CtxWrite", cid=cid, offset=offset, messages=1) as outcome:
            number = self._context(cid).write(offset, message)
            self._process.touch()
            outcome.append(f"message {number}")
        return number

    async def ctx_free(self, cid: int) -> None:
        """Let go of a context.

        Raises:
            SyscallError: NOT_FOUND, INVALID for the main one, which lives as long as the process.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CtxFree", cid=cid):
            self._context(cid)
            if cid == MAIN:
                raise invalid(f"context {MAIN} belongs to the process and ends with it")
            del self._process.contexts[cid]
