"""Frames of PyPI's datafusion: the same rows, joined on the device; what cannot go says so."""

import datafusion
import horton_join
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import ALWAYS, rows, tables
from test_joins import JOINS, launches


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("partitions", [1, 4])
def test_frames_in_memory(name, partitions):
    config = datafusion.SessionConfig().with_target_partitions(partitions)
    stock = datafusion.SessionContext(config)
    for table_name, table in tables().items():
        stock.from_arrow(table, table_name)
    frame = stock.sql(JOINS[name])
    result = horton_join.collect(frame, ALWAYS)
    expected = rows(frame)
    assert rows(result) == expected
    assert result.decisions and all(decision.device for decision in result.decisions), (
        result.decisions
    )
    assert rows(result) == expected, "a second run"
    assert result.count() == len(expected)


@pytest.fixture
def files(tmp_path):
    """A context with Parquet files of several row groups, so that scans have several partitions."""
    config = datafusion.SessionConfig().with_target_partitions(4)
    config = config.set("datafusion.optimizer.repartition_file_min_size", "1")
    stock = datafusion.SessionContext(config)
    for name, table in tables().items():
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=500)
        stock.register_parquet(name, str(tmp_path / f"{name}.parquet"))
    return stock


def test_frames_of_parquet(files):
    for name, query in JOINS.items():
        frame = files.sql(query)
        assert rows(horton_join.collect(frame, ALWAYS)) == rows(frame), name


def test_views_functions_and_the_frame_api(files):
    files.sql("CREATE VIEW v AS SELECT k, upper(s) AS s, a FROM l WHERE a % 3 = 0").collect()
    frame = files.table("v").join(files.table("r").select("k", "b"), on="k")
    frame = frame.with_column(
        "d", datafusion.functions.sqrt(datafusion.col("b").cast(pa.float64()))
    )
    expected = rows(frame)
    assert len(expected) > 100 and rows(horton_join.collect(frame, ALWAYS)) == expected


def test_explain_shows_the_device_at_work(files):
    frame = files.sql(JOINS["inner"])
    assert launches(horton_join.collect(frame, ALWAYS).explain(analyze=True)) > 0
    never = horton_join.collect(frame, {"horton.enabled": "never"})
    assert launches(never.explain(analyze=True)) == 0
    assert rows(never) == rows(frame)


def test_python_functions_are_an_error_that_names_them(stock):
    scalar = datafusion.udf(lambda a: a, [pa.int64()], pa.int64(), "immutable", name="mine")
    with pytest.raises(
        horton_join.HortonError, match="scalar function 'mine'.*Python functions do not run"
    ):
        horton_join.collect(stock.table("l").select(scalar(datafusion.col("a"))))

    class Last(datafusion.Accumulator):
        def state(self):
            return [pa.scalar(1)]

        def update(self, *values):
            pass

        def merge(self, *states):
            pass

        def evaluate(self):
            return pa.scalar(1)

    last = datafusion.udaf(Last, [pa.int64()], pa.int64(), [pa.int64()], "immutable", name="last")
    with pytest.raises(horton_join.HortonError, match="aggregate function 'last'"):
        horton_join.collect(stock.table("l").aggregate([], [last(datafusion.col("a"))]))


def test_tables_that_are_python_objects_are_an_error(tmp_path):
    stock = datafusion.SessionContext()
    stock.register_dataset("d", pyarrow.dataset.dataset(tables()["l"]))
    with pytest.raises(horton_join.HortonError, match="cannot send DatasetExec") as caught:
        horton_join.collect(stock.table("d"))
    assert "register_parquet" in str(caught.value) and len(str(caught.value)) < 600


def test_the_memory_limit_of_a_context_is_an_error():
    runtime = datafusion.RuntimeEnvBuilder().with_greedy_memory_pool(100 << 20)
    limited = datafusion.SessionContext(datafusion.SessionConfig(), runtime)
    limited.from_arrow(tables()["l"], "l")
    frame = limited.sql("SELECT x.a FROM l x JOIN l y ON x.a = y.a")
    with pytest.raises(horton_join.HortonError, match="memory limit of 100M.*memory_limit="):
        horton_join.collect(frame, context=limited)
    assert (
        horton_join.collect(frame, ALWAYS, context=limited, memory_limit=100 << 20).count() == 3000
    )
    with pytest.raises(Exception, match="information_schema"):
        limited.sql("SHOW datafusion.runtime.memory_limit")
    unlimited = datafusion.SessionContext()
    unlimited.from_arrow(tables()["l"], "l")
    assert horton_join.collect(unlimited.table("l"), context=unlimited).count() == 3000


def test_the_memory_limit_of_collect_binds(stock):
    frame = stock.sql("SELECT l.a, r.b FROM l JOIN r ON l.k = r.k ORDER BY l.a, r.b")
    tight = horton_join.collect(frame, {**ALWAYS, "horton.spill": False}, memory_limit=1000)
    with pytest.raises(horton_join.HortonError, match="Resources exhausted|memory"):
        tight.to_arrow()


@pytest.mark.parametrize("thing", [1, "SELECT 1", pa.table({"a": [1]})])
def test_other_things_are_a_type_error(ctx, thing):
    with pytest.raises(TypeError, match="collect takes a datafusion.DataFrame"):
        horton_join.collect(thing)
    with pytest.raises(TypeError, match="collect takes a datafusion.DataFrame"):
        horton_join.collect(ctx.sql("SELECT 1"))


def test_other_versions_are_an_error(stock, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "54.1.0")
    with pytest.raises(horton_join.HortonError, match="datafusion 55, not 54.1.0"):
        horton_join.collect(stock.table("l"))
