"""The two halves of an exchange with a server: clients ask, the server answers all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vflbench.federation.party import SERVER, Party


async def ask(me: Party, payload: Any, tag: str, answer: str) -> Any:
    """Client: send `payload` to the server under `tag`, and wait for what comes back under `answer`."""
    await me.send(SERVER, payload, tag=tag)
    return await me.recv(SERVER, tag=answer)


async def answer_all(me: Party, combine: Callable[[list[Any]], Any], tag: str, answer: str) -> None:
    """Server: collect one payload from each client, and send each `combine` of them; a list from `combine` has one answer per client."""
    parts = await me.recv_all(me.clients, tag=tag)
    combined = await me.compute(combine, parts)
    if not isinstance(combined, list):
        await me.send_many(me.clients, combined, tag=answer)
        return
    for client, part in zip(me.clients, combined, strict=True):
        await me.send(client, part, tag=answer)
