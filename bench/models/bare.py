"""What the same calls take without us, by httpx2 and trio alone: python -m bench.models.bare calls|crowd …

calls URL BODY COUNT    one call after the other; prints a JSON list of seconds
crowd URL BODY COUNT    that many streams at once; prints seconds to the first piece of each, and in all
"""

import json
import ssl
import sys
import time
from typing import Any

import httpx2
import trio

WARM_UP = 5  # calls that are not counted, so that connections and code are there


def _client(most: int) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
    # As for any server on this machine: no proxy, and certificates that nobody looks at are not read.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False, verify=context)


async def calls(url: str, body: bytes, count: int) -> list[float]:
    """Seconds of each of some calls."""
    taken: list[float] = []
    async with _client(1) as client:
        for _ in range(WARM_UP + count):
            since = time.perf_counter()
            answer = await client.post(url, content=body, headers={"content-type": "application/json"})
            json.loads(answer.content)
            taken.append(time.perf_counter() - since)
    return taken[WARM_UP:]


async def crowd(url: str, body: bytes, count: int) -> dict[str, Any]:
    """Many streams at once; seconds until the first piece of each, and until all have ended."""
    first: list[float] = []
    sizes: set[int] = set()
    async with _client(count) as client, trio.open_nursery() as nursery:
        began, spent = time.perf_counter(), time.process_time()

        async def one() -> None:
            since, size, told = time.perf_counter(), 0, False
            head = {"content-type": "application/json"}
            async with client.stream("POST", url, content=body, headers=head) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        text = _text(json.loads(line[6:]))
                        if text and not told:
                            told = True
                            first.append(time.perf_counter() - since)
                        size += len(text)
            sizes.add(size)

        for _ in range(count):
            nursery.start_soon(one)
    total, cpu = time.perf_counter() - began, time.process_time() - spent
    return {"first": first, "total": total, "cpu": cpu, "sizes": sorted(sizes)}


def _text(chunk: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


if __name__ == "__main__":
    what, where, sent, number = sys.argv[1:]
    print(json.dumps(trio.run({"calls": calls, "crowd": crowd}[what], where, sent.encode(), int(number))))
