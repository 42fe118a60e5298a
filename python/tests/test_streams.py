"""Results go to other packages, and tables come from them, by Arrow's C interface."""

import re
from pathlib import Path

import datafusion
import duckdb
import horton_join
import pandas
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from conftest import ALWAYS, rows, tables

JOIN = "SELECT l.a, r.b, l.s FROM l JOIN r ON l.k = r.k"


@pytest.fixture
def frame(ctx):
    return ctx.sql(JOIN)


@pytest.fixture(scope="module")
def expected(stock):
    return rows(stock.sql(JOIN))


def test_pyarrow_takes_it(frame, expected):
    table = pa.table(frame)
    assert table.schema == pa.schema(frame) == pa.schema(frame.schema)
    assert rows(table) == rows(frame.to_arrow()) == expected
    reader = pa.RecordBatchReader.from_stream(frame)
    assert rows(reader.read_all()) == expected


def test_polars_takes_it(frame, expected):
    assert sorted(polars.DataFrame(frame).rows(), key=repr) == expected
    assert sorted(frame.to_polars().rows(), key=repr) == expected


def test_pandas_takes_it(frame, expected):
    for taken in (pandas.DataFrame.from_arrow(frame), frame.to_pandas()):
        assert sorted(taken.itertuples(index=False, name=None), key=repr) == expected


def test_duckdb_takes_it(frame, expected):
    taken = duckdb.sql("SELECT * FROM frame").fetchall()
    assert sorted(taken, key=repr) == expected


def test_datafusion_takes_it(frame, expected):
    assert rows(datafusion.SessionContext().from_arrow(frame)) == expected


def test_nothing_is_copied(tmp_path):
    table = pa.table({"a": pa.array(range(1000), pa.int64())})
    session = horton_join.SessionContext()
    session.register_arrow("t", table)
    out = pa.table(session.sql("SELECT a FROM t"))
    address = table["a"].chunk(0).buffers()[1].address
    assert out["a"].chunk(0).buffers()[1].address == address


def test_tables_outlive_their_source(expected):
    session = horton_join.SessionContext(ALWAYS)
    for name, table in tables().items():
        session.register_arrow(name, table)
    del table
    frame = session.sql(JOIN)
    stream = pa.RecordBatchReader.from_stream(frame)
    del session, frame
    assert rows(stream.read_all()) == expected


@pytest.mark.parametrize(
    "made",
    [
        lambda table: table,
        lambda table: polars.from_arrow(table),
        lambda table: table.to_batches()[0],
        lambda table: pa.RecordBatchReader.from_batches(
            table.schema, (batch for batch in table.to_batches(max_chunksize=100))
        ),
        lambda table: OnlyArray(table.to_batches()[0]),
        lambda table: table.slice(1).cast(
            pa.schema(
                [
                    ("k", pa.int64()),
                    ("s", pa.dictionary(pa.int32(), pa.string())),
                    ("a", pa.int64()),
                ]
            )
        ),
    ],
    ids=["table", "polars", "batch", "generator", "array", "dictionary"],
)
def test_arrow_objects_become_tables(made):
    table = tables()["l"]
    session = horton_join.SessionContext(ALWAYS)
    session.register_arrow("l", made(table))
    session.register_arrow("r", tables()["r"])
    frame = session.sql("SELECT l.a, r.b FROM l JOIN r ON l.k = r.k AND l.s = r.s WHERE l.a > 0")
    reference = datafusion.SessionContext()
    for name, data in tables().items():
        reference.from_arrow(data, name)
    expected = rows(
        reference.sql("SELECT l.a, r.b FROM l JOIN r ON l.k = r.k AND l.s = r.s WHERE l.a > 0")
    )
    assert len(expected) > 5 and rows(frame) == expected


class OnlyArray:
    """An object that has no stream."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


class Nested:
    """An object whose stream is read, by Python, while it is asked for."""

    def __init__(self, frame) -> None:
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table(self.frame).__arrow_c_stream__()


@pytest.mark.parametrize("wrapped", [lambda frame: frame, Nested])
def test_results_become_tables(frame, expected, wrapped):
    session = horton_join.SessionContext()
    session.register_arrow("t", wrapped(frame))
    assert rows(session.sql("SELECT * FROM t")) == expected


def test_files_become_tables(tmp_path, expected):
    left, right = tables().values()
    pa.parquet.write_table(left, tmp_path / "l.parquet", row_group_size=500)
    pa.csv.write_csv(right, tmp_path / "r.csv")
    polars.from_arrow(right).write_ndjson(tmp_path / "r.json")
    session = horton_join.SessionContext(ALWAYS)
    session.register_parquet("l", tmp_path / "l.parquet")
    session.register_csv("r", str(tmp_path / "r.csv"))
    session.register_json("j", tmp_path / "r.json")
    assert rows(session.sql(JOIN)) == expected
    assert rows(session.sql(JOIN.replace(" r ON", " j r ON"))) == expected


def test_csv_without_header_and_with_another_delimiter(tmp_path):
    (tmp_path / "t.csv").write_text("1;x\n2;y\n")
    session = horton_join.SessionContext()
    session.register_csv("t", tmp_path / "t.csv", has_header=False, delimiter=";")
    assert rows(session.sql("SELECT column_1, column_2 FROM t")) == [(1, "x"), (2, "y")]


def test_an_empty_result_has_its_schema(ctx):
    frame = ctx.sql("SELECT l.a, l.s FROM l JOIN r ON l.k = r.k WHERE l.a < 0")
    table = pa.table(frame)
    assert table.num_rows == 0 and table.schema.names == ["a", "s"] == frame.schema.names
    assert polars.DataFrame(frame).columns == ["a", "s"]


def test_a_stream_dropped_midway_stops_its_query():
    session = horton_join.SessionContext()
    reader = pa.RecordBatchReader.from_stream(
        session.sql("SELECT a.value FROM range(100000000) a CROSS JOIN range(100000000) b")
    )
    assert reader.read_next_batch().num_rows > 0
    reader.close()
    assert session.sql("SELECT 1 AS one").count() == 1


def test_what_the_readme_says(tmp_path, monkeypatch):
    readme = Path(__file__).parent.parent / "README.md"
    use, options, extension, interop = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    pa.parquet.write_table(pa.table({"customer": [1, 2, 2, 3]}), "orders.parquet")
    names: dict[str, object] = {}
    exec(use, names)
    assert sorted(names["df"]["name"]) == ["Ann", "Bo", "Bo"]
    exec(options, names)
    exec(extension, names)
    assert names["df"].to_pydict() == {"k": [2], "name": ["Bo"]}
    stock = datafusion.SessionContext()
    for name in "ab":
        stock.from_arrow(pa.table({"k": [1, 2]}), name)
    names["datafusion_ctx"] = stock
    exec(interop, names)
    assert names["result"].count() == 2
