"""What is run: the SQL that makes tables, and queries over them.

    DATA/tpch-1/tables/*.parquet ─┬▶ CREATE TABLE t AS SELECT …   ─▶ TPC-H 1 in memory
           made once, as by       └▶ CREATE EXTERNAL TABLE t …    ─▶ TPC-H 1 from Parquet
           make evaluation            queries/q01.sql …

    CREATE=FILE,… QUERIES=DIR                                     ─▶ a suite for each file
"""

import pathlib
import shutil
import subprocess
from dataclasses import dataclass

from programs import Failure


@dataclass
class Suite:
    """Queries over the tables that one SQL file makes."""

    title: str
    create: pathlib.Path
    queries: list


def chosen(asked, scratch):
    """The suites that were asked for. SQL that is written goes to `scratch`."""
    if not asked.queries:
        folder = tpch(asked.data, asked.scale)
        tables, title = (folder / "tables").absolute(), f"TPC-H {asked.scale:g}"
        queries = files(folder / "queries", asked.only)
        return [Suite(f"{title} in memory", written(tables, IN_MEMORY, scratch / "memory"), queries),
                Suite(f"{title} from Parquet", written(tables, EXTERNAL, scratch / "parquet"),
                      queries)]
    queries = files(asked.queries, asked.only)
    creates = [pathlib.Path(name) for name in asked.create.split(",")]
    return [Suite(f"{asked.queries.name} over {file.name}", file, queries) for file in creates]


def files(folder, only):
    """The queries of a folder whose names contain one of `only`."""
    found = sorted(folder.glob("*.sql"))
    found = [file for file in found if any(part in file.stem for part in only.split(","))]
    if not found:
        raise Failure(f"no query in {folder}")
    return found


def tpch(data, scale):
    """The folder of TPC-H's files, which are made if they are not there."""
    folder = data / f"tpch-{scale:g}"
    if not folder.is_dir():
        # A folder gets its name when all of it is there.
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        data.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cargo", "run", "--release", "--example", "tpch_join", "--", "--scale",
                        str(scale), "--write", partial], check=True)
        partial.rename(folder)
    return folder


IN_MEMORY = "CREATE TABLE {} AS SELECT * FROM '{}';\n"
EXTERNAL = "CREATE EXTERNAL TABLE {} STORED AS PARQUET LOCATION '{}';\n"


def written(tables, statement, file):
    """A file with one statement for each table."""
    file.write_text("".join(statement.format(table.stem, str(table).replace("'", "''"))
                            for table in sorted(tables.glob("*.parquet"))))
    return file
