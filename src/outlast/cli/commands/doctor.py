"""`outlast doctor`: is all as it should be, and if not, what to do about it."""

from __future__ import annotations

import click

from outlast.cli.codes import Exit
from outlast.cli.health_checks import Finding, life_of, settings_of, versions, wakeup_channel_of
from outlast.cli.place import settings_here
from outlast.cli.session import Session, with_session
from outlast.cli.text import neutral
from outlast.errors import OutlastError


@click.command("doctor")
@click.option(
    "--wakeup-channel", metavar="URL", help="An SQS queue that wakes workers, to be checked too."
)
@with_session
async def doctor_command(session: Session, *, wakeup_channel: str | None) -> None:
    """Check versions, durability, settings of the server, clock, schema, workers, stuck and half-moved
    runs, dead tasks, and the wake-up channel. Each finding comes with its remedy. Exits with 1 if there is a
    problem; warnings alone are 0.

    \b
      outlast doctor
      outlast doctor --json --wakeup-channel 'sqs://wakeups?region=eu-central-1'
    """
    out, found = session.out, [versions()]
    try:
        async with session.store() as store:
            found.append(
                Finding("ok", f"the store {session.place.shown} opens, its tables are current")
            )
            found += [one async for one in settings_of(store)]
            found += [one async for one in life_of(store)]
    except OutlastError as error:
        found.append(_in_the_way(error))
    wakeup_channel = wakeup_channel or settings_here()[0].get("wakeup_channel")
    if wakeup_channel:
        try:
            found += [one async for one in wakeup_channel_of(str(wakeup_channel))]
        except OutlastError as error:
            found.append(_in_the_way(error))
    for one in found:
        if out.json:
            out.value(one._asdict())
            continue
        mark, colour = {"ok": ("✓", "green"), "warning": ("!", "yellow")}.get(
            one.level, ("✗", "red")
        )
        out.line(f"{out.styled(mark, colour)} {neutral(one.what)}")
        if one.remedy:
            out.line(f"    {neutral(one.remedy)}", "cyan")
    if any(one.level == "problem" for one in found):
        raise SystemExit(Exit.FOUND)


def _in_the_way(error: OutlastError) -> Finding:
    return Finding(
        "problem", str(error), "see the message; `outlast --help` says how the store is chosen"
    )
