"""PyPI's datafusion with horton_join.Extension: its own frames, the same rows, joined on the device.

tables of all kinds ─┬─▶ SessionContext().with_extensions(Extension(ALWAYS)) ─▶ rows ─┐
                     └─▶ SessionContext()                                    ─▶ rows ─┴─▶ equal
"""

import gc
import os
import signal
import threading
import time
import weakref

import datafusion
import duckdb
import horton_join
import polars
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import ALWAYS, rows, tables
from datafusion import col, udaf, udf, udwf
from datafusion.object_store import LocalFileSystem
from datafusion.user_defined import Accumulator, WindowEvaluator
from test_joins import JOINS, launches


def extended(options=ALWAYS, partitions=4, runtime=None, **arguments):
    """An extended context, and its extension."""
    config = datafusion.SessionConfig().with_target_partitions(partitions)
    config = config.set("datafusion.optimizer.repartition_file_min_size", "1")
    extension = horton_join.Extension(options, **arguments)
    context = datafusion.SessionContext(config, runtime)
    return context.with_extensions(extension), extension


def explained(context, query):
    """What EXPLAIN ANALYZE says."""
    return "\n".join(row[1] for row in rows(context.sql(f"EXPLAIN ANALYZE {query}")))


def in_batches(context, folder):
    for name, table in tables().items():
        context.register_record_batches(name, [table.to_batches(1000), table.to_batches(700)])


def from_arrow(context, folder):
    for name, table in tables().items():
        context.from_arrow(table, name)


def from_pydict(context, folder):
    for name, table in tables().items():
        context.from_pydict(table.to_pydict(), name)


def from_polars(context, folder):
    for name, table in tables().items():
        context.from_polars(polars.DataFrame(table), name)


def from_pandas(context, folder):
    for name, table in tables().items():
        context.from_pandas(table.to_pandas(), name)


def from_parquet(context, folder):
    for name, table in tables().items():
        path = folder / f"{name}.parquet"
        pa.parquet.write_table(table, path, row_group_size=500)
        context.register_parquet(name, str(path))


def from_csv(context, folder):
    for name, table in tables().items():
        path = folder / f"{name}.csv"
        pyarrow.csv.write_csv(table, path)
        context.register_csv(name, str(path))


def from_json(context, folder):
    for name, table in tables().items():
        path = folder / f"{name}.json"
        path.write_text("\n".join(polars.DataFrame(table).write_ndjson().splitlines()))
        context.register_json(name, str(path))


def from_dataset(context, folder):
    for name, table in tables().items():
        context.register_dataset(name, pyarrow.dataset.dataset(table))


def from_views(context, folder):
    for name, table in tables().items():
        context.from_arrow(table, f"{name}_table")
        context.sql(f"CREATE VIEW {name} AS SELECT * FROM {name}_table").collect()


def from_store(context, folder):
    """Files that only the context's object store finds."""
    context.register_object_store("horton://", LocalFileSystem(str(folder)), "files")
    for name, table in tables().items():
        pa.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=500)
        context.register_parquet(name, f"horton://files/{name}.parquet")


KINDS = [
    in_batches,
    from_arrow,
    from_pydict,
    from_polars,
    from_pandas,
    from_parquet,
    from_csv,
    from_json,
    from_dataset,
    from_views,
    from_store,
]


@pytest.mark.parametrize("register", KINDS)
def test_tables_of_all_kinds(register, tmp_path):
    context, extension = extended()
    stock = datafusion.SessionContext()
    for session in (context, stock):
        register(session, tmp_path)
    for name in ("inner", "full", "text keys", "not in", "nested"):
        expected = rows(stock.sql(JOINS[name]))
        assert len(expected) > 10
        assert rows(context.sql(JOINS[name])) == expected, name
        decisions = extension.decisions
        assert decisions and all(decision.device for decision in decisions), (name, decisions)
    assert launches(explained(context, JOINS["inner"])) > 0
    assert extension._plans_under_way() == 0


@pytest.fixture
def context():
    session, _ = extended()
    from_arrow(session, None)
    return session


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("partitions", [1, 4])
def test_joins_of_all_types(stock, name, partitions):
    context, extension = extended(partitions=partitions)
    from_arrow(context, None)
    frame = context.sql(JOINS[name])
    expected = rows(stock.sql(JOINS[name]))
    assert rows(frame) == expected
    assert rows(frame) == expected, "a second run"
    assert frame.count() == len(expected)
    assert extension.decisions


def test_frames_go_where_they_always_went(context, stock):
    query = JOINS["inner"]
    expected = rows(stock.sql(query))
    frame = context.sql(query)
    assert rows(frame.to_arrow_table()) == expected
    assert rows(frame.to_polars()) == expected
    assert len(frame.to_pandas()) == len(expected)
    assert len(frame.to_pylist()) == len(expected)
    arrow = frame.to_arrow_table()
    assert duckdb.sql("SELECT count(*) FROM arrow").fetchall() == [(len(expected),)]
    assert sum(batch.to_pyarrow().num_rows for batch in frame.execute_stream()) == len(expected)
    parts = frame.execute_stream_partitioned()
    assert sum(b.to_pyarrow().num_rows for part in parts for b in part) == len(expected)
    assert frame.limit(7).to_arrow_table().num_rows == 7
    by_method = context.table("l").join(context.table("r").select("k", "b"), on="k")
    by_method = by_method.select("a", "b")
    assert len(rows(by_method)) == len(expected)


def double():
    return udf(lambda a: pa.compute.multiply(a, 2), [pa.int64()], pa.int64(), "stable", "double")


class Sum(Accumulator):
    def __init__(self):
        self.sum = 0

    def state(self):
        return [pa.scalar(self.sum)]

    def update(self, values):
        self.sum += pa.compute.sum(values).as_py() or 0

    def merge(self, states):
        self.sum += pa.compute.sum(states[0]).as_py() or 0

    def evaluate(self):
        return pa.scalar(self.sum)


class Place(WindowEvaluator):
    def evaluate_all(self, values, num_rows):
        return pa.array(range(num_rows))


def add_functions(context):
    context.register_udf(double())
    context.register_udaf(udaf(Sum, [pa.int64()], pa.int64(), [pa.int64()], "stable", "total"))
    context.register_udwf(udwf(Place, pa.int64(), pa.int64(), "stable", "place"))


FUNCTIONS = {
    "above": "SELECT double(l.a), r.b FROM l JOIN r ON l.k = r.k",
    "below": "SELECT l.a, r.b FROM (SELECT double(k) AS k, a FROM l) l JOIN r ON l.k = r.k",
    "key": "SELECT l.a, r.b FROM l JOIN r ON double(l.k) = double(r.k)",
    "filter": "SELECT l.a, r.b FROM l LEFT JOIN r ON l.k = r.k AND double(l.a) < r.b",
    "aggregate": "SELECT l.s, total(r.b) FROM l JOIN r ON l.k = r.k GROUP BY l.s",
    "window": "SELECT l.a, place(l.a) OVER (ORDER BY l.a, r.b) FROM l JOIN r ON l.k = r.k",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_python_functions(context, stock, name):
    for session in (context, stock):
        add_functions(session)
    expected = rows(stock.sql(FUNCTIONS[name]))
    assert len(expected) > 10
    assert rows(context.sql(FUNCTIONS[name])) == expected
    assert launches(explained(context, FUNCTIONS[name])) > 0


def test_errors_of_python_functions_are_those_of_the_function(context):
    def fail(values):
        raise RuntimeError("no more of this")

    context.register_udf(udf(fail, [pa.int64()], pa.int64(), "stable", "fail"))
    for query in (
        "SELECT fail(l.a) FROM l JOIN r ON l.k = r.k",
        "SELECT x.a FROM (SELECT fail(k) AS k, a FROM l) x JOIN r ON x.k = r.k",
    ):
        with pytest.raises(Exception, match="no more of this"):
            context.sql(query).collect()


def test_functions_keep_their_state(context):
    """A function is called, not a copy of it."""
    seen = []

    def note(values):
        seen.append(len(values))
        return values

    context.register_udf(udf(note, [pa.int64()], pa.int64(), "volatile", "note"))
    context.sql("SELECT x.a FROM (SELECT note(k) AS k, a FROM l) x JOIN r ON x.k = r.k").collect()
    assert sum(seen) == 3000


def test_statements(context, stock, tmp_path):
    join = JOINS["inner"]
    expected = rows(stock.sql(join))
    context.sql(f"CREATE TABLE made AS {join}").collect()
    assert rows(context.table("made")) == expected
    context.sql(f"INSERT INTO made {join}").collect()
    assert context.table("made").count() == 2 * len(expected)
    context.sql(f"COPY ({join}) TO '{tmp_path}/copied.parquet'").collect()
    assert rows(pa.parquet.read_table(tmp_path / "copied.parquet")) == expected
    context.sql(join).write_csv(str(tmp_path / "csv"), with_header=True)
    context.sql(join).write_parquet(str(tmp_path / "parquet"))
    assert rows(pa.parquet.read_table(tmp_path / "parquet")) == expected
    assert len(rows(context.sql("DESCRIBE made"))) == 3
    assert rows(context.sql("SELECT * FROM generate_series(1, 3)")) == [(1,), (2,), (3,)]
    plan = "\n".join(row[1] for row in rows(context.sql(f"EXPLAIN {join}")))
    assert "HortonJoinExec" in plan and "HashJoinExec" not in plan
    assert launches(explained(context, join)) > 0
    recursive = """
        WITH RECURSIVE x AS (
            SELECT 1 AS n UNION ALL SELECT l.a + 1 FROM x JOIN l ON l.a = x.n WHERE n < 20)
        SELECT count(*) FROM x JOIN r ON r.b = x.n"""
    assert rows(context.sql(recursive)) == rows(stock.sql(recursive))


def test_order_is_kept(stock):
    context, _ = extended()
    for session in (context, stock):
        if not session.table_exist("o"):
            session.from_arrow(tables()["l"].sort_by("a"), "o")
    for query in (
        "SELECT o.a, r.b FROM o JOIN r ON o.k = r.k ORDER BY o.a, r.b",
        "SELECT o.a, r.b FROM o LEFT JOIN r ON o.k = r.k ORDER BY r.b DESC, o.a LIMIT 50",
        "SELECT o.a, count(*) FROM o JOIN r ON o.k = r.k GROUP BY o.a ORDER BY o.a",
        "SELECT a, b, sum(b) OVER (PARTITION BY o.k ORDER BY a, b) AS s "
        "FROM o JOIN r ON o.k = r.k ORDER BY a, b",
    ):
        if not context.table_exist("r"):
            context.from_arrow(tables()["r"], "r")
        ours, theirs = (session.sql(query).to_arrow_table() for session in (context, stock))
        assert ours.equals(theirs), query


def test_tables_in_memory_are_not_copied(script):
    process = script("""
        import resource, datafusion, horton_join, pyarrow as pa
        extension = horton_join.Extension({"horton.enabled": "always"})
        ctx = datafusion.SessionContext().with_extensions(extension)
        query = "SELECT count(t.s) FROM t JOIN u ON t.k = u.k"
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        def table(rows):
            return pa.table({"k": range(rows), "s": pa.array(["x" * 400] * rows)})
        ctx.from_arrow(table(1000), "u")
        ctx.from_arrow(table(1000), "t")
        ctx.sql(query).collect()
        ctx.deregister_table("t")
        large = table(500_000)
        ctx.from_arrow(large, "t")
        before = peak()
        ctx.sql(query).collect()
        print(extension.decisions[0].device is not None, (peak() - before) / large.nbytes < 0.5)
    """)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "True True\n"), err


def test_functions_by_name_leave_their_join_to_datafusion(stock):
    context = datafusion.SessionContext().with_python_udf_inlining(enabled=False)
    context = context.with_extensions(horton_join.Extension(ALWAYS))
    from_arrow(context, None)
    for session in (context, stock):
        session.register_udf(double())
    assert rows(context.sql(FUNCTIONS["filter"])) == rows(stock.sql(FUNCTIONS["filter"]))
    assert "HashJoinExec" in explained(context, FUNCTIONS["filter"])
    assert rows(context.sql(FUNCTIONS["above"])) == rows(stock.sql(FUNCTIONS["above"]))
    assert launches(explained(context, FUNCTIONS["above"])) > 0


def test_steps_of_recursive_queries_are_datafusions(context):
    query = """
        WITH RECURSIVE x AS (
            SELECT 1 AS n UNION ALL SELECT l.a + 1 FROM x JOIN l ON l.a = x.n WHERE n < 20)
        SELECT count(*) FROM x"""
    plan = explained(context, query)
    assert "HashJoinExec" in plan and "HortonJoinExec" not in plan


def test_options_are_checked_where_they_are_given():
    with pytest.raises(ValueError, match="horton.enabled.*'auto', 'always' or 'never'"):
        horton_join.Extension({"horton.enabled": "perhaps"})
    with pytest.raises(ValueError, match="option datafusion.execution.batch_size is the context's"):
        horton_join.Extension({"datafusion.execution.batch_size": 7})
    with pytest.raises(ValueError, match="memory_limit must be at least 1"):
        horton_join.Extension(memory_limit=0)
    with pytest.raises(TypeError, match="horton.spill must be a str, int or bool"):
        horton_join.Extension({"horton.spill": 0.5})
    assert "always" in repr(horton_join.Extension(ALWAYS, device="0:0"))


def test_never_leaves_all_to_datafusion(stock):
    context, extension = extended({"horton.enabled": "never"})
    from_arrow(context, None)
    assert rows(context.sql(JOINS["inner"])) == rows(stock.sql(JOINS["inner"]))
    assert extension.decisions == []
    assert "HashJoinExec" in explained(context, JOINS["inner"])


def test_small_joins_stay_on_the_host_and_say_why():
    horton_join.SessionContext().warm_up()
    context, extension = extended({})
    from_arrow(context, None)
    context.sql(JOINS["inner"]).collect()
    assert [decision.device for decision in extension.decisions] == [None]
    assert extension.decisions[0].reason


def test_an_unknown_device_is_an_error_that_lists_those_there_are():
    context, _ = extended(device="nonesuch")
    from_arrow(context, None)
    with pytest.raises(Exception, match="no OpenCL device matches 'nonesuch'; available: 0:0"):
        context.sql(JOINS["inner"]).collect()


def test_random_keys_stay_datafusions(context):
    query = "SELECT count(*) FROM l JOIN r ON l.k = r.k AND l.a + 1000 * random() < r.b"
    plan = explained(context, query)
    assert "HashJoinExec" in plan and "HortonJoinExec" not in plan


def test_errors_below_and_above_a_join(context):
    for query in (
        "SELECT 1 / (l.a / 100000) FROM l JOIN r ON l.k = r.k",
        "SELECT r.b FROM (SELECT 1 / (a / 100000) AS k FROM l) l JOIN r ON l.k = r.k",
    ):
        with pytest.raises(Exception, match="Divide by zero"):
            context.sql(query).collect()


def test_the_memory_limit_is_that_of_the_context():
    runtime = datafusion.RuntimeEnvBuilder().with_greedy_memory_pool(20 << 10)
    context, _ = extended({**ALWAYS, "horton.spill": False}, partitions=1, runtime=runtime)
    from_arrow(context, None)
    with pytest.raises(Exception, match="Resources exhausted|memory"):
        context.sql(JOINS["inner"]).collect()
    runtime = datafusion.RuntimeEnvBuilder().with_greedy_memory_pool(20 << 10)
    context, _ = extended(ALWAYS, partitions=1, runtime=runtime, memory_limit=1 << 30)
    from_arrow(context, None)
    assert context.sql(JOINS["inner"]).count() > 0


def test_a_context_is_extended_once():
    context, _ = extended()
    with pytest.raises(ValueError, match="horton_join"):
        context.with_extensions(horton_join.Extension())


def test_other_extensions_stay(stock):
    class Other:
        calls = 0

        def __datafusion_session_planner__(self, ctx, fallback):
            Other.calls += 1

    extension = horton_join.Extension(ALWAYS)
    context = datafusion.SessionContext().with_extensions(Other(), extension, Other())
    from_arrow(context, None)
    assert rows(context.sql(JOINS["nested"])) == rows(stock.sql(JOINS["nested"]))
    assert Other.calls == 2 and extension.decisions


def test_one_extension_serves_several_contexts_and_threads(stock):
    extension = horton_join.Extension(ALWAYS)
    contexts = [datafusion.SessionContext().with_extensions(extension) for _ in range(3)]
    expected = rows(stock.sql(JOINS["nested"]))
    results = []

    def work(context):
        from_arrow(context, None)
        for _ in range(3):
            results.append(rows(context.sql(JOINS["nested"])) == expected)

    threads = [threading.Thread(target=work, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 9
    assert extension._plans_under_way() == 0


def test_streams_may_be_dropped_early(context):
    for taken in (0, 1):
        stream = context.sql(JOINS["full"]).execute_stream()
        for _ in range(taken):
            next(stream)
        del stream
    gc.collect()
    assert context.sql(JOINS["full"]).count() > 0


def test_a_plan_that_cannot_be_run_twice_says_so(context, stock, tmp_path):
    def run(session, plan):
        streams = [session.execute(plan, part) for part in range(plan.partition_count)]
        return sum(batch.to_pyarrow().num_rows for stream in streams for batch in stream)

    plan = context.sql(JOINS["inner"]).execution_plan()
    expected = len(rows(stock.sql(JOINS["inner"])))
    assert [run(context, plan) for _ in range(2)] == [expected] * 2
    # A RepartitionExec below the join gives its rows once. DataFusion's own plan panics.
    files, _ = extended()
    from_csv(files, tmp_path)
    plan = files.sql(JOINS["inner"]).execution_plan()
    assert run(files, plan) == expected
    with pytest.raises(Exception, match="plan the query again"):
        run(files, plan)


def test_a_context_may_go_before_its_frames(stock):
    """Its joins are then DataFusion's, as the context writes them for us. Rows are right."""
    context, _ = extended()
    from_arrow(context, None)
    frame = context.sql(JOINS["nested"])
    gone = weakref.ref(context)
    del context
    gc.collect()
    assert gone() is None
    assert rows(frame) == rows(stock.sql(JOINS["nested"]))


def test_frames_of_an_extended_context_are_no_thing_for_collect(context):
    with pytest.raises(horton_join.HortonError, match="has horton_join.Extension: use its frames"):
        horton_join.collect(context.sql(JOINS["inner"]), ALWAYS)


def test_other_versions_are_an_error(script):
    """The version comes from the library itself: another one is planted there."""
    process = script("""
        import importlib.metadata, datafusion, horton_join
        metadata = importlib.metadata.version
        importlib.metadata.version = (
            lambda name: "54.1.0" if name == "datafusion" else metadata(name))
        try:
            datafusion.SessionContext().with_extensions(horton_join.Extension())
        except horton_join.HortonError as error:
            print(error)
    """)
    out, err = process.communicate(timeout=120)
    assert "horton_join.Extension is for datafusion 55, not 54.1.0" in out, (out, err)


def test_a_forked_process_says_so(script):
    process = script("""
        import os, datafusion, horton_join
        ctx = datafusion.SessionContext().with_extensions(horton_join.Extension())
        ctx.from_pydict({"k": [1, 2]}, "a")
        query = "SELECT x.k FROM a x JOIN a y ON x.k = y.k"
        print(ctx.sql(query).count(), flush=True)
        if os.fork() == 0:
            try:
                ctx.sql(query).execution_plan()
            except Exception as error:
                print("spawn" in str(error), flush=True)
            os._exit(0)
        os.wait()
    """)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "2\nTrue\n"), err


def test_ctrl_c_stops_a_query(script):
    process = script("""
        import datafusion, horton_join, pyarrow as pa
        ctx = datafusion.SessionContext().with_extensions(
            horton_join.Extension({"horton.enabled": "always"}))
        ctx.from_arrow(pa.table({"k": [1] * 300000}), "t")
        try:
            print("begun")
            ctx.sql("SELECT sum(t.k + u.k) FROM t JOIN t u ON t.k = u.k").collect()
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert process.stdout.readline() == "begun\n"
    time.sleep(3)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "interrupted\n"), err


def test_columns_and_expressions_stay_theirs(context):
    frame = context.table("l").join(context.table("r"), left_on="k", right_on="k")
    frame = frame.filter(col("a") > 10).aggregate([], [datafusion.functions.count_star()])
    assert frame.to_arrow_table().column(0)[0].as_py() > 10
