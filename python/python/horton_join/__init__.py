"""Apache DataFusion's SQL with hash joins on OpenCL devices.

    files, Arrow data ─▶ SessionContext.sql ─┐
    frames of `datafusion` ─▶ collect ───────┴─▶ DataFrame ─▶ polars, pyarrow, pandas, duckdb

    datafusion.SessionContext().with_extensions(Extension()) ─▶ its own frames, joined on devices

A DataFrame is lazy: it runs when rows are taken, without the GIL, and Ctrl-C stops it.
"""

from ._native import (
    DataFrame,
    Decision,
    Device,
    Extension,
    HortonError,
    Schema,
    SessionContext,
    __version__,
    collect,
    devices,
)

__all__ = [
    "DataFrame",
    "Decision",
    "Device",
    "Extension",
    "HortonError",
    "Schema",
    "SessionContext",
    "__version__",
    "collect",
    "devices",
]
