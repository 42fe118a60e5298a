"""Joins on the device give the rows of PyPI's datafusion, and say where they ran."""

import re

import horton_join
import pytest
from conftest import ALWAYS, rows, tables

JOINS = {
    "inner": "SELECT l.a, r.b, l.s FROM l JOIN r ON l.k = r.k",
    "left": "SELECT l.a, r.b FROM l LEFT JOIN r ON l.k = r.k",
    "right": "SELECT l.a, r.b FROM l RIGHT JOIN r ON l.k = r.k",
    "full": "SELECT l.a, r.b FROM l FULL JOIN r ON l.k = r.k",
    "semi": "SELECT l.a FROM l LEFT SEMI JOIN r ON l.k = r.k",
    "anti": "SELECT l.a FROM l LEFT ANTI JOIN r ON l.k = r.k",
    "text keys": "SELECT l.a, r.b FROM l JOIN r ON l.s = r.s AND l.k = r.k",
    "filter": "SELECT l.a, r.b FROM l LEFT JOIN r ON l.k = r.k AND l.a < r.b",
    "in": "SELECT l.a FROM l WHERE l.k IN (SELECT k FROM r WHERE b > 100)",
    "not in": "SELECT l.a FROM l WHERE l.k NOT IN (SELECT k FROM r WHERE k IS NOT NULL)",
    "nested": "SELECT l.a, r.b, x.a AS c FROM l JOIN r ON l.k = r.k JOIN l x ON x.a = r.b",
    "grouped": "SELECT l.s, count(*), sum(r.b) FROM l JOIN r ON l.k = r.k GROUP BY l.s",
}


def launches(plan: str) -> int:
    return sum(int(n.replace(",", "")) for n in re.findall(r"kernel_launches=([\d,]+)", plan))


@pytest.mark.parametrize("name", JOINS)
def test_rows_are_those_of_datafusion(ctx, stock, name):
    expected = rows(stock.sql(JOINS[name]))
    assert len(expected) > 10
    frame = ctx.sql(JOINS[name])
    assert rows(frame) == expected
    assert frame.count() == len(expected)
    assert frame.decisions and all(decision.device for decision in frame.decisions), frame.decisions


def test_explain_shows_the_device_at_work(ctx):
    assert "HortonJoinExec" in ctx.explain(JOINS["inner"])
    assert launches(ctx.explain(JOINS["inner"])) == 0
    assert launches(ctx.explain(JOINS["inner"], analyze=True)) > 0


def test_set_changes_where_joins_run():
    session = horton_join.SessionContext(ALWAYS)
    for name, table in tables().items():
        session.register_arrow(name, table)
    session.sql("SET horton.enabled = 'never'")
    frame = session.sql(JOINS["inner"])
    plan = frame.explain(analyze=True)
    assert "HashJoinExec" in plan and "HortonJoinExec" not in plan
    assert frame.decisions == []
    assert rows(session.sql("SHOW horton.enabled")) == [("horton.enabled", "never")]


def test_small_joins_stay_on_the_host_and_say_why():
    session = horton_join.SessionContext()
    session.warm_up()
    for name, table in tables().items():
        session.register_arrow(name, table)
    frame = session.sql(JOINS["inner"])
    frame.count()
    (decision,) = frame.decisions
    assert decision.device is None and "min_build_rows" in decision.reason
    assert (decision.join, decision.rows) == ("Inner", 3000)
    assert decision.build in ("left", "right")
    assert "on the host" in repr(decision)


def test_memory_limit_is_kept_and_joins_spill(stock):
    session = horton_join.SessionContext(ALWAYS, memory_limit=400_000, target_partitions=1)
    big = tables(30_000)
    for name, table in big.items():
        session.register_arrow(name, table)
    frame = session.sql("SELECT l.a, r.b FROM l JOIN r ON l.k = r.k AND l.a = r.b")
    expected = sum(
        1
        for k, j in zip(big["l"]["k"].to_pylist(), big["r"]["k"].to_pylist(), strict=True)
        if k and k == j
    )
    assert len(rows(frame)) == expected
    assert any(decision.is_spilled for decision in frame.decisions), frame.decisions
    session.sql("SET horton.spill = false")
    with pytest.raises(horton_join.HortonError, match="Resources exhausted|memory"):
        frame = session.sql("SELECT l.a, r.b FROM l JOIN r ON l.k = r.k AND l.a = r.b")
        frame.to_arrow()


def test_a_frame_runs_again_each_time():
    session = horton_join.SessionContext(ALWAYS)
    session.sql("CREATE TABLE t AS VALUES (1), (2)")
    frame = session.sql("SELECT x.column1 FROM t x JOIN t y ON x.column1 = y.column1")
    assert rows(frame) == [(1,), (2,)]
    assert rows(frame) == [(1,), (2,)]
    session.sql("INSERT INTO t VALUES (3)").count()
    assert rows(frame) == [(1,), (2,), (3,)]


def test_devices_are_listed_with_what_option_device_takes():
    usable = [device for device in horton_join.devices() if device.obstacle is None]
    assert usable
    device = usable[0]
    assert device.kind in ("cpu", "gpu", "accelerator") and device.memory > 0
    assert device.name in horton_join.SessionContext(device=device.index).warm_up()
