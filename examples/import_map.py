"""An import of many rows, some of them bad, in a program without async.

`map` calls a step for each row, several at once, and gives the results in the order of the rows.
`tolerate` says how many bad ones are too many. The workflow publishes how far it is, and anybody
may ask, also after it has ended. A row that is imported twice, because of a crash, replaces itself:
that makes the step safe to repeat.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from outlast import sync
from outlast.errors import StepFailed

ROWS, BATCH = 300, 100


@dataclass
class Row:
    number: int
    name: str
    price: str
    target: str


@dataclass
class Report:
    imported: int
    rejected: list[str]


@sync.step
def import_row(row: Row) -> int:
    cents = round(float(row.price) * 100)  # ValueError for what is no number
    with closing(sqlite3.connect(row.target, timeout=30)) as shop, shop:
        shop.execute(
            "INSERT OR REPLACE INTO products VALUES (?, ?, ?)", (row.number, row.name, cents)
        )
    return cents


@sync.workflow
def import_products(rows: list[Row]) -> Report:
    report = Report(imported=0, rejected=[])
    sync.publish(done=0)
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        results: Sequence[int | StepFailed] = sync.map(import_row, batch, concurrency=8, tolerate=5)
        for row, result in zip(batch, results, strict=True):
            if isinstance(result, StepFailed):
                report.rejected.append(f"row {row.number}: {row.price!r} is no price")
            else:
                report.imported += 1
        sync.publish(done=start + len(batch))
    return report


def a_file_of_products(target: str) -> list[Row]:
    """300 rows, of which every 90th has a price that nobody can read."""
    return [
        Row(n, f"product {n}", "free" if n % 90 == 0 else f"{n / 10:.2f}", target)
        for n in range(1, ROWS + 1)
    ]


def main(folder: Path) -> None:
    target = str(folder / "shop.db")
    with closing(sqlite3.connect(target)) as shop:
        shop.execute("CREATE TABLE IF NOT EXISTS products (number PRIMARY KEY, name, cents)")
    with sync.App(f"sqlite:///{folder}/imports.db", workflows=[import_products]) as app:
        print(f"Importing {ROWS} rows:")
        run = app.start(import_products(a_file_of_products(target)), id="june")
        report = follow(run)
        print(f"{report.imported} imported, {len(report.rejected)} rejected:")
        for line in report.rejected:
            print(f"   {line}")
    with closing(sqlite3.connect(target)) as shop:
        [(products,)] = shop.execute("SELECT count(*) FROM products")
    print(f"The shop has {products} products.")


def follow(run: sync.RunHandle[Report]) -> Report:
    """Show how far the run is until it has ended."""
    while True:
        try:
            report = run.result(timeout=0.2)
        except TimeoutError:
            print(f"   {run.query('done')} are done, it goes on …")
        else:
            print(f"   {run.query('done')} are done")
            return report


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if sys.argv[1:] else temporary))
