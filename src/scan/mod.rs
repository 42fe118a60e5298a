//! Scans that leave out rows which no join above has use for.
//!
//! ```text
//!  rules:   InsertFilterNodes ─▶ FilterPushdown(Post) ─▶ RemoveUnusedFilterNodes
//!
//!           Join ── dynamic filters ──┐              Join
//!            │                        ▼               │
//!           DynamicFilterExec  ◀── keeps them        DynamicFilterExec: filters=[…]
//!            │                                        │
//!           DataSourceExec     ◀── prunes by them    DataSourceExec: …
//! ```
//!
//! DataFusion passes dynamic filters down to its scans. But a scan of a table in memory takes none,
//! and a scan of Parquet files prunes only files, row groups and pages by them. Joins are then fed
//! ten to a hundred times the rows that matter. So a rule puts a node ([`exec`]) above each scan
//! just before DataFusion's own rule hands filters out. It keeps those of joins and applies them to
//! each batch as far as that pays ([`filter_stream`]). Comparisons of a filter node above are
//! tested with them ([`comparisons`]). Rows of a table in memory that lie in few of its partitions
//! are dealt out to all of them ([`even_partitions`]). A filter tests only what cannot fail
//! ([`infallible`]), on its way down, too ([`pushdown_guard`]). It stays above what would fail once
//! rows are gone ([`short_circuit`]). Where none arrived the node goes again. A node of its own
//! serves scans of any kind, and leaves the scan visible to code that looks for it; a wrapper
//! inside `DataSourceExec` would hide it. ([`cached_statistics`] is such a wrapper, for as long as
//! a query is planned.)
//!
//! Sideways information passing of this kind is known from Beeri and Ramakrishnan ("On the power of
//! magic", 1987). Velox and DuckDB push filters of hash joins into scans.

pub mod cached_statistics;
pub mod comparisons;
pub mod even_partitions;
pub mod exec;
pub mod filter_stream;
pub mod infallible;
pub mod infallible_plan;
mod one_child;
pub mod prefetch;
pub mod pushdown_guard;
pub mod short_circuit;
pub mod table_columns;
