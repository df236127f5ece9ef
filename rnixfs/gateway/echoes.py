"""What providers want back unchanged, and no client of either API would send."""

import msgspec

from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role

KEPT = 1000  # answers remembered; the one given longest ago goes first


class Echoes:
    """Remembers what belongs to answers with tool calls until the client sends their results.

    Some providers sign what their models think, and refuse a conversation whose calls come back without it.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, dict[str, object]] = {}

    def keep(self, answer: ModelAnswer) -> None:
        """Remember what belongs to an answer."""
        if not answer.echo or not answer.tool_calls:
            return
        self._kept[_key(answer)] = answer.echo
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def restore(self, request: ModelRequest) -> ModelRequest:
        """The request with what belongs to the answers in it."""
        if not self._kept:
            return request
        return msgspec.structs.replace(request, messages=[self._whole(one) for one in request.messages])

    def _whole(self, message: Message) -> Message:
        if message.role is not Role.ASSISTANT or not message.tool_calls:
            return message
        echo = self._kept.get(_key(message))
        return message if echo is None else msgspec.structs.replace(message, echo=echo)


def _key(said: Message | ModelAnswer) -> bytes:
    # With their arguments: there are providers that give the same ids in every conversation.
    return msgspec.json.encode(said.tool_calls, order="sorted")
