"""What the tests share: tables with duplicates, NULLs and texts, and sessions that join on the device.

tables() ─┬─▶ horton_join.SessionContext ─▶ rows ─┐
          └─▶ datafusion.SessionContext  ─▶ rows ─┴─▶ equal, in any order
"""

import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import datafusion
import horton_join
import pyarrow as pa
import pytest

ALWAYS = {"horton.enabled": "always", "horton.on_device_error": "error"}


def tables(rows: int = 3000) -> dict[str, pa.Table]:
    """Two tables: keys with duplicates, NULLs, and some that only one side has."""
    generator = random.Random(7)

    def keys(low: int, high: int) -> list[int | None]:
        return [
            None if generator.random() < 0.05 else generator.randint(low, high) for _ in range(rows)
        ]

    left = pa.table(
        {"k": keys(0, 2000), "s": [f"s{i % 97}" for i in range(rows)], "a": range(rows)}
    )
    right = pa.table(
        {"k": keys(1000, 3000), "s": [f"s{i % 89}" for i in range(rows)], "b": range(rows)}
    )
    return {"l": left, "r": right}


def rows(result: object) -> list[tuple[object, ...]]:
    """The rows of any Arrow stream, in an order of their own."""
    if isinstance(result, datafusion.DataFrame):
        # Its stream reads one partition after the other, and so never ends above some repartitions.
        table = pa.Table.from_batches(result.collect(), result.schema())
    else:
        table = pa.table(result)
    columns = [column.to_pylist() for column in table.columns]
    return sorted(zip(*columns, strict=True), key=repr)


@pytest.fixture(scope="session")
def ctx() -> horton_join.SessionContext:
    session = horton_join.SessionContext(ALWAYS)
    for name, table in tables().items():
        session.register_arrow(name, table)
    return session


@pytest.fixture(scope="session")
def stock() -> datafusion.SessionContext:
    session = datafusion.SessionContext()
    for name, table in tables().items():
        session.from_arrow(table, name)
    return session


@pytest.fixture
def script() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts programs of their own, which end with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(text)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
