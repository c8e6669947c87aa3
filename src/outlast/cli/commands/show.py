"""`outlast show`: what one run has done."""

from __future__ import annotations

from shlex import quote

import click
from msgspec import Raw

from outlast.cli.arguments import RUN, find_run
from outlast.cli.output import STATUS_COLOURS, Output, length, neutral, neutral_lines
from outlast.cli.run_views import as_text, draw_tree, event_record, part_record, run_record
from outlast.cli.session import Session, with_session
from outlast.model.run import Run
from outlast.ports.store import Store
from outlast.query.outline import Part, outline

DEEPEST = 8


@click.command("show")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.option("--full", is_flag=True, help="Inputs and results at full length.")
@click.option("--history", is_flag=True, help="The events as they are recorded.")
@with_session
async def show_command(session: Session, *, run_id: str, full: bool, history: bool) -> None:
    """Show a run as a tree: steps, attempts, maps, children, compensation, and when.

    \b
      outlast show order-1
      outlast show order-1 --full
      outlast show order-1 --history
    """
    out = session.out
    async with session.store() as store:
        run = await find_run(store, run_id)
        if history:
            async for event in store.stream(run.id):
                if out.json:
                    out.value(event_record(event))
                else:
                    about = f"{event.sequence:5}  {event.type:24} {neutral(event.step_name)}"
                    data = neutral(as_text(event.output or event.data))
                    out.line(f"{about:50}  {data if full else out.short(data, 52)}".rstrip())
            return
        parts = await _with_children(store, run, DEEPEST)
    if out.json:
        out.value({**run_record(run, values=True), "parts": [part_record(part) for part in parts]})
        return
    _head(out, run, full=full)
    if parts:
        out.line()
        draw_tree(out, run, parts, full=full)
    if run.error:
        out.line()
        for line in neutral_lines(run.error).splitlines():
            out.line(line, "red")
    if not run.status.terminal or run.error:
        out.note(f"what it waits for: {session.here(f'outlast why {quote(run.id)}')}")


async def _with_children(store: Store, run: Run, depth: int) -> list[Part]:
    """The parts of a run, and below each child its own."""
    parts = outline(await store.history(run.id), ended=run.status.terminal)
    for part in [one for top in parts for one in top.walk()]:
        if part.child_id is not None and depth > 0:
            child = await store.find_one(part.child_id)
            if child is not None:
                part.parts += await _with_children(store, child, depth - 1)
    return parts


def _head(out: Output, run: Run, *, full: bool) -> None:
    out.line(neutral(run.id), "bright_white", bold=True)
    end = run.ended_at or out.now
    took = length((end - run.created_at).total_seconds())
    status = out.styled(run.status, STATUS_COLOURS.get(run.status))
    waits = f" ({neutral(run.wait_kind)})" if run.wait_kind else ""
    lasted = f"took {took}" if run.ended_at else f"for {took}"
    lines: list[tuple[str, str]] = [
        ("status", f"{status}{waits}, {lasted}"),
        ("workflow", neutral(_code(run))),
        ("created", out.moment(run.created_at)),
    ]
    if run.ended_at:
        lines.append(("ended", out.moment(run.ended_at)))
    if run.parent:
        lines.append(("parent", neutral(run.parent)))
    if run.owner:
        lines.append(
            ("held by", f"{neutral(run.owner)}, lease ends {out.moment(run.claimed_until)}")
        )
    for name, value in run.attributes.items():
        lines.append((f"attr.{neutral(name)}", neutral(str(value))))
    values: list[tuple[str, Raw | None]] = [("input", run.input), ("result", run.result)]
    values += [("halted with", run.halt_data), *((f"published {k}", v) for k, v in run.ctx.items())]
    for name, raw in values:
        if raw is not None:
            text = neutral(as_text(raw))
            lines.append((neutral(name), text if full else out.short(text, 14)))
    for name, text in lines:
        out.line(f"{name:<12}  {text}")


def _code(run: Run) -> str:
    return run.workflow if run.version == "" else f"{run.workflow} version {run.version}"
