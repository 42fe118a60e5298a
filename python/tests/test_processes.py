"""Threads, signals and processes: queries run without the GIL, and Ctrl-C stops them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import horton_join
import pyarrow as pa
import pytest
from conftest import ALWAYS, rows, tables

JOIN = "SELECT l.a, r.b FROM l JOIN r ON l.k = r.k"
# More pairs than any machine makes in an hour.
ENDLESS = (
    "SELECT sum(a.value * b.value) AS s FROM range(10000000000) a CROSS JOIN range(10000000000) b"
)


def test_other_threads_go_on_while_a_query_runs():
    session = horton_join.SessionContext()
    query = "SELECT sum(sqrt(a.value * b.value)) FROM range(3000) a CROSS JOIN range(3000) b"
    for take in (
        lambda frame: frame.to_arrow(),
        lambda frame: pa.table(frame),
        lambda frame: frame.count(),
    ):
        frame = session.sql(query)
        ticks, done = [], threading.Event()

        def tick(ticks=ticks, done=done):
            while not done.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.001)

        other = threading.Thread(target=tick)
        other.start()
        begun = time.perf_counter()
        take(frame)
        ended = time.perf_counter()
        done.set()
        other.join()
        during = [at for at in ticks if begun < at < ended]
        longest = max(b - a for a, b in zip([begun, *during], [*during, ended], strict=True))
        assert longest < max(0.5 * (ended - begun), 0.05), (longest, ended - begun)


def test_threads_share_a_session(ctx, stock):
    expected = rows(stock.sql(JOIN))
    shared = ctx.sql(JOIN)
    results: list[bool] = []

    def work():
        for _ in range(5):
            results.append(rows(ctx.sql(JOIN)) == expected and rows(shared) == expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


def test_a_short_script_ends_well(script):
    """A script ends while a thread loads the driver. Its libraries must not be cleaned up meanwhile."""
    for _ in range(10):
        process = script("""
            import horton_join
            session = horton_join.SessionContext()
            print(session.sql(
                "SELECT a.value FROM range(0, 9) a JOIN range(4, 20) b ON a.value = b.value").count())
        """)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "5\n"), err


def interrupted(process) -> str:
    """Presses Ctrl-C once the process has begun. Returns what it printed then, within 20 seconds."""
    assert process.stdout.readline() == "begun\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize(
    "take",
    ["frame.to_polars()", "frame.to_arrow()", "pyarrow.table(frame)", "polars.DataFrame(frame)",
     "frame.count()", "frame.show()", "frame.explain(analyze=True)"],
)  # fmt: skip
def test_ctrl_c_stops_a_query(script, take):
    process = script(f"""
        import sys, time, horton_join, polars, pyarrow
        session = horton_join.SessionContext()
        frame = session.sql({ENDLESS!r} if "count" not in {take!r} else
            "SELECT a.value FROM range(10000000000) a CROSS JOIN range(10000000000) b WHERE a.value % 7 = 1")
        try:
            try:
                print("begun")
                {take}
            except Exception as error:
                # Arrow has no exceptions, so these packages raise one of their own first.
                time.sleep(1)
                print("not interrupted", error)
        except KeyboardInterrupt:
            print("interrupted", session.sql("SELECT 1").count())
    """)
    assert interrupted(process) == "interrupted 1\n"


@pytest.mark.parametrize("take", ["frame.to_arrow()", "frame.count()", "pyarrow.table(frame)"])
def test_ctrl_c_is_heard_while_all_threads_compute(script, take):
    # More parts than the runtime has threads, and minutes for a batch of each.
    slow = "levenshtein(repeat('ab', 3000 + value % 2), repeat('ba', 3000))"
    part = f"SELECT value FROM range(100000) WHERE {slow} = -1"
    parts = " UNION ALL ".join([part] * (4 * (os.cpu_count() or 1)))
    process = script(f"""
        import time, horton_join, pyarrow
        frame = horton_join.SessionContext().sql({parts!r})
        try:
            try:
                print("begun")
                {take}
            except Exception as error:
                time.sleep(1)
                print("not interrupted", error)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert interrupted(process) == "interrupted\n"


def test_what_a_signal_handler_raises_is_raised(script):
    process = script(f"""
        import signal, horton_join, pyarrow
        class TooLong(Exception):
            pass
        def handler(*_):
            raise TooLong("too long")
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            horton_join.SessionContext().sql({ENDLESS!r}).to_arrow()
        except TooLong as error:
            print(error)
    """)
    out, err = process.communicate(timeout=60)
    assert out == "too long\n", err


def joined(name: str) -> int:
    session = horton_join.SessionContext(ALWAYS)
    for table, data in tables().items():
        session.register_arrow(table, data)
    return session.sql(JOIN).count() if name else 0


def test_multiprocessing_spawn(ctx):
    expected = ctx.sql(JOIN).count()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(joined, ["a", "b"]) == [expected] * 2


def test_a_forked_process_says_that_it_cannot(script):
    process = script("""
        import os, horton_join
        session = horton_join.SessionContext()
        session.sql("SELECT 1").count()
        child = os.fork()
        if child == 0:
            try:
                session.sql("SELECT 1").count()
            except horton_join.HortonError as error:
                print(error)
            os._exit(0)
        os.waitpid(child, 0)
    """)
    out, err = process.communicate(timeout=60)
    assert "'spawn'" in out, err


def test_without_opencl_joins_run_on_the_host(script):
    os.environ["HORTON_OPENCL_LIBRARY"] = "/nonexistent"
    try:
        process = script("""
            import horton_join
            print(horton_join.devices())
            session = horton_join.SessionContext({"horton.enabled": "always"})
            frame = session.sql("SELECT a.value FROM range(9) a JOIN range(4, 20) b ON a.value = b.value")
            print(frame.count(), frame.decisions[0].device, "no device" in frame.decisions[0].reason)
        """)
    finally:
        del os.environ["HORTON_OPENCL_LIBRARY"]
    out, err = process.communicate(timeout=60)
    assert out == "[]\n5 None True\n", err


def test_the_example_runs():
    example = Path(__file__).parent.parent / "examples" / "orders.py"
    ran = subprocess.run(
        [sys.executable, example, "20000"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Inner join" in ran.stdout and ", on " not in ran.stdout.split("Decision(")[0]
    assert "on the host" not in ran.stdout, ran.stdout


def test_the_benchmark_runs():
    bench = Path(__file__).parent.parent / "benches" / "overhead.py"
    ran = subprocess.run(
        [sys.executable, bench, "20000", "1"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "overhead:" in ran.stdout
