"""Errors are Python's, and say what to do. No panic reaches Python."""

import horton_join
import polars
import pyarrow as pa
import pytest
from conftest import ALWAYS, tables


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"horton.enabled": "perhaps"}, "horton.enabled.*'auto', 'always' or 'never'"),
        ({"horton.colour": "red"}, "horton.colour.*options: enabled"),
        ({"horton.chunk_rows": -1}, "horton.chunk_rows.*whole number"),
        ({"datafusion.execution.batch_size": "many"}, "datafusion.execution.batch_size"),
        ({"enabled": "always"}, "option enabled"),
        ({"datafusion.runtime.memory_limit": "1G"}, "use the argument memory_limit"),
    ],
)
def test_bad_options_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        horton_join.SessionContext(options)


def test_options_have_their_types():
    with pytest.raises(TypeError, match="horton.spill must be a str, int or bool, not float"):
        horton_join.SessionContext({"horton.spill": 0.5})
    with pytest.raises(ValueError, match="memory_limit must be at least 1"):
        horton_join.SessionContext(memory_limit=0)
    with pytest.raises(ValueError, match="target_partitions"):
        horton_join.SessionContext(target_partitions=0)
    with pytest.raises(ValueError, match="horton.device is given twice"):
        horton_join.SessionContext({"horton.device": "0:0"}, device="0:0")
    session = horton_join.SessionContext(
        {"horton.spill": False, "horton.chunk_rows": 4096, "horton.filters": "off"}, device="0:0"
    )
    shown = repr(session)
    assert all(
        part in shown for part in ("spill=false", "chunk_rows=4096", "filters=off", "device=0:0")
    )


def test_an_unknown_device_is_an_error_that_lists_those_there_are():
    session = horton_join.SessionContext(ALWAYS, device="nonesuch")
    for name, table in tables().items():
        session.register_arrow(name, table)
    with pytest.raises(
        horton_join.HortonError, match="no OpenCL device matches 'nonesuch'; available: 0:0"
    ):
        session.sql("SELECT l.a FROM l JOIN r ON l.k = r.k").to_arrow()
    with pytest.raises(horton_join.HortonError, match="nonesuch"):
        session.warm_up()


def test_sql_errors_come_from_sql(ctx):
    for query, text in [
        ("SELEC 1", "SELEC"),
        ("SELECT nope FROM l", "nope"),
        ("SELECT * FROM nope", "nope"),
    ]:
        with pytest.raises(horton_join.HortonError, match=text):
            ctx.sql(query)


def test_errors_while_running_come_through_the_stream(ctx):
    frame = ctx.sql("SELECT 1 / (l.a / 100000) FROM l JOIN r ON l.k = r.k")
    for take in (frame.to_arrow, frame.to_polars, frame.to_pandas, frame.show, frame._repr_html_):
        with pytest.raises(horton_join.HortonError, match="Divide by zero"):
            take()
    # These raise what their packages make of a stream's error.
    with pytest.raises(pa.ArrowException, match="Divide by zero"):
        pa.table(frame)
    with pytest.raises(Exception, match="Divide by zero"):
        polars.DataFrame(frame)


def test_texts_with_zero_bytes_are_no_panic(ctx):
    frame = ctx.sql("SELECT CAST(concat('x', chr(0), 'y', CAST(a AS VARCHAR)) AS INT) FROM l")
    with pytest.raises(pa.ArrowException, match="x y"):
        pa.table(frame)


def test_tables(ctx, tmp_path):
    with pytest.raises(horton_join.HortonError, match="l"):
        ctx.register_arrow("l", pa.table({"a": [1]}))
    with pytest.raises(TypeError, match="__arrow_c_stream__.*not int"):
        ctx.register_arrow("x", 1)
    with pytest.raises(ValueError, match="delimiter"):
        ctx.register_csv("x", tmp_path, delimiter="→")
    (tmp_path / "bad.parquet").write_text("a,b\n1,2\n" * 10)
    with pytest.raises(horton_join.HortonError, match="(?i)parquet"):
        ctx.register_parquet("x", tmp_path / "bad.parquet")


def test_a_failing_producer_is_an_error(ctx):
    def batches():
        yield tables()["l"].to_batches()[0]
        raise RuntimeError("the well is dry")

    reader = pa.RecordBatchReader.from_batches(tables()["l"].schema, batches())
    with pytest.raises(horton_join.HortonError, match="the well is dry"):
        ctx.register_arrow("x", reader)


def test_a_stream_is_taken_once():
    reader = pa.RecordBatchReader.from_batches(tables()["l"].schema, tables()["l"].to_batches())
    session = horton_join.SessionContext()
    session.register_arrow("once", reader)
    assert session.sql("SELECT * FROM once").count() == 3000


def test_classes_cannot_be_made_by_hand():
    for kind in (
        horton_join.DataFrame,
        horton_join.Decision,
        horton_join.Device,
        horton_join.Schema,
    ):
        with pytest.raises(TypeError):
            kind()
