"""The two halves of an exchange with a server: clients ask, the server answers all of them at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Any

from vflbench.federation.party import SERVER, Party


async def ask(me: Party, payload: Any, tag: str, answer: str) -> Any:
    """Client: send `payload` to the server under `tag`, and wait for what comes back under `answer`."""
    await me.send(SERVER, payload, tag=tag)
    return await me.recv(SERVER, tag=answer)


def asking(me: Party, tag: str, answer: str, at: Container[int] | None = None) -> Callable[[int, Any], Awaitable[Any]]:
    """`ask` as what samplers and split networks await: (place, payload) -> the answer; at places not in `at` the payload itself."""

    async def exchange(place: int, payload: Any) -> Any:
        return await ask(me, payload, tag, answer) if at is None or place in at else payload

    return exchange


async def answer_all(me: Party, combine: Callable[[list[Any]], Any], tag: str, answer: str) -> None:
    """Server: collect one payload from each client, and send each `combine` of them; a list from `combine` has one answer per client."""
    parts = await me.recv_all(me.clients, tag=tag)
    combined = await me.compute(combine, parts)
    if not isinstance(combined, list):
        await me.send_many(me.clients, combined, tag=answer)
        return
    for client, part in zip(me.clients, combined, strict=True):
        await me.send(client, part, tag=answer)
