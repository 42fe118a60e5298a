"""Joins ten million orders with their customers on an OpenCL device, and hands the rows to polars.

customers: polars ─┐
                   ├─ register_arrow ─▶ sql: JOIN on the device ─▶ polars.DataFrame
orders: pyarrow ───┘

python orders.py [ROWS]        needs: horton-join, polars, pyarrow, numpy
"""

import sys

import horton_join
import numpy
import polars
import pyarrow

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
print("devices:", horton_join.devices())

# Small tables need the option to go to a device; large ones do so by themselves.
ctx = horton_join.SessionContext({"horton.enabled": "always"})
random = numpy.random.default_rng(7)
ctx.register_arrow(
    "customers",
    polars.DataFrame({"id": range(rows // 10), "country": random.integers(0, 5, rows // 10)}),
)
ctx.register_arrow(
    "orders",
    pyarrow.table({"customer": random.integers(0, rows // 10, rows), "price": random.random(rows)}),
)

result = ctx.sql("""
    SELECT country, count(*) AS orders, round(sum(price)) AS total
    FROM orders JOIN customers ON customer = id
    GROUP BY country ORDER BY country
""")
print(polars.DataFrame(result))
for decision in result.decisions:
    print(decision)
