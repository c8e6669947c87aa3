"""Restate's side of the ten steps, which its server calls: `python -m bench.peers.restate_handler PORT
[LEDGER]`. With a ledger each step writes a line to it and takes 20 ms, for bench/recovery.py."""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import sys

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from bench.peers._clock import STEPS, TAKES

service = restate.Service("Ten")
ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if sys.argv[2:] else None


async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


async def noted(id: str, number: int) -> int:
    """Say that it has begun, and take a while."""
    os.write(ledger, f"{id} {number}\n".encode())
    await asyncio.sleep(TAKES)
    return number + 1


@service.handler()
async def ten_steps(context: restate.Context, number: int) -> int:
    """Ten steps in a row."""
    id = context.request().id
    for _ in range(STEPS):
        if ledger is None:
            number = await context.run_typed("increase", increase, number=number)
        else:
            number = await context.run_typed("noted", noted, id=id, number=number)
    return number


if __name__ == "__main__":
    config = Config()
    config.bind, config.loglevel = [f"127.0.0.1:{sys.argv[1]}"], "ERROR"
    asyncio.run(serve(restate.app([service]), config))
