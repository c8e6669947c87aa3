"""An agent that thinks, uses tools, is killed in the middle of a thought's work, and goes on.

Model and tools are steps: what they said is on record, so after a crash no thought is paid for
twice. The conversation is the state of a `loop`: a replay begins at its last turn, however long it
has become. The model here is a script; put a call of yours in its place.

A worker process runs the agent and is killed with SIGKILL while a tool is at work. A second one
opens the same file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import outlast

QUESTION = "What is a night in the cheapest hotel, in yen?"


@dataclass
class Thought:
    tool: str
    argument: str


@outlast.step(retry=outlast.Retry(attempts=3))
async def think(conversation: list[str]) -> Thought:
    note("thought")
    script = [
        Thought("find_hotels", "Lisbon"),
        Thought("exchange_rate", "EUR/JPY"),
        Thought("multiply", "80 165"),
        Thought("answer", "13200 yen"),
    ]
    thought = script[len(conversation) - 1]
    print(f"   thinks: {thought.tool}({thought.argument})", flush=True)
    return thought


@outlast.step
async def find_hotels(city: str) -> str:
    note("find_hotels")
    return f"in {city}: Alfa 120 EUR, Beira 80 EUR, Cais 95 EUR"


@outlast.step(timeout=60)
async def exchange_rate(pair: str) -> str:
    if note("exchange_rate") == 1:
        print("   the bank is slow …", flush=True)
        await asyncio.Event().wait()  # the first worker never gets an answer
    return f"{pair} is 165"


@outlast.step
def multiply(numbers: str) -> str:
    note("multiply")
    left, right = numbers.split()
    return str(int(left) * int(right))


TOOLS: dict[str, outlast.Step[[str], str]] = {
    "find_hotels": find_hotels,
    "exchange_rate": exchange_rate,
    "multiply": multiply,
}


async def turn(conversation: list[str]) -> list[str] | outlast.Stop[str]:
    thought = await think(conversation)
    if thought.tool == "answer":
        return outlast.Stop(thought.argument)
    observation = await TOOLS[thought.tool](thought.argument)
    return [*conversation, observation]


@outlast.workflow
async def agent(question: str) -> str:
    return await outlast.loop(turn, [question])


# -- the show -------------------------------------------------------------------------------------


def note(line: str) -> int:
    """Write down durably that something was done, and say how often it was."""
    bill = Path(os.environ["BILL"])
    with bill.open("a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())
    return bill.read_text().splitlines().count(line)


async def work(store: str) -> None:
    async with outlast.App(store, workflows=[agent], lease=1.0) as app:
        run = await app.start(agent(QUESTION), id="question-1")
        print(f"   answers: {await run.result()}", flush=True)


def worker(store: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "work", store]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main(folder: Path) -> None:
    os.environ["BILL"] = str(folder / "bill.txt")
    store = f"sqlite:///{folder}/agent.db"
    print(f"{QUESTION}\n\nA worker begins:")
    with worker(store) as first:
        assert first.stdout is not None
        for line in first.stdout:
            print(line, end="")
            if "slow" in line:
                first.send_signal(signal.SIGKILL)
    print(f"   killed: exit code {first.returncode}\n\nAnother one goes on:")
    with worker(store) as second:
        assert second.stdout is not None
        for line in second.stdout:
            print(line, end="")
    bill = (folder / "bill.txt").read_text().splitlines()
    print("\nThe bill:")
    for what in dict.fromkeys(bill):
        print(f"   {what:14} {bill.count(what)}")
    print("Four thoughts were needed, and four were paid for. The tool that was cut off ran again.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(sys.argv[1] if sys.argv[1:] else temporary))
