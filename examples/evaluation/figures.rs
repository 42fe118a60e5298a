//! Reads what the programs measured, and compares.
//!
//! ```text
//!   query,…,stock_median_ms,horton_median_ms,…  ─▶ lines ─┬▶ ratio of each: horton / DataFusion
//!   q05,…,31.2,22.9,…                                     ├▶ ratio of the sums
//!                                                         └▶ the worst first
//! ```
//!
//! Columns are found by their names, as the programs have different ones. Sums are over queries
//! that both sides have times of.
//!
//! A median over the best of its runs says how far times of one side are apart. Of a query, the
//! larger of both sides' is its noise: a ratio must be further from 1 to say anything.

use std::fs;
use std::path::Path;

use horton_test_support::duckdb::Times;

use crate::Result;

/// The times of one query.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name.
    pub query: String,
    /// The median with Horton joins, in milliseconds.
    pub horton: f64,
    /// The median of plain DataFusion; `None` if it had too little memory.
    pub stock: Option<f64>,
    /// The median over the best, of the side where that is more.
    pub noise: f64,
    /// Joins that ran on the device.
    pub device_joins: u64,
    /// Wrong rows, or devices that did nothing.
    pub differences: u64,
}

impl Line {
    /// Horton's time over plain DataFusion's: below 1, Horton is faster.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.horton / self.stock?)
    }
}

/// Times of the queries that both sides have, added up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sums {
    /// Number of queries.
    pub queries: usize,
    /// Time with Horton joins, in milliseconds.
    pub horton: f64,
    /// The other side.
    pub other: f64,
}

impl Sums {
    /// Horton's sum over the other one; `None` if there is no query that both have.
    pub fn ratio(&self) -> Option<f64> {
        (self.queries > 0).then_some(self.horton / self.other)
    }
}

/// Adds up `lines` and the `other` side's times.
pub fn sums(lines: &[Line], other: impl Fn(&Line) -> Option<f64>) -> Sums {
    let none = Sums {
        queries: 0,
        horton: 0.0,
        other: 0.0,
    };
    let both = lines
        .iter()
        .filter_map(|line| Some((line.horton, other(line)?)));
    both.fold(none, |sums, (horton, other)| Sums {
        queries: sums.queries + 1,
        horton: sums.horton + horton,
        other: sums.other + other,
    })
}

/// `lines`, the one with the largest ratio first, those without a ratio last.
pub fn worst_first(lines: &[Line]) -> Vec<&Line> {
    let mut lines: Vec<&Line> = lines.iter().collect();
    let key = |line: &Line| line.ratio().unwrap_or(f64::NEG_INFINITY);
    lines.sort_by(|a, b| key(b).total_cmp(&key(a)));
    lines
}

/// A table of comma-separated values, in which no value has a comma.
#[derive(Debug, PartialEq)]
pub struct Csv {
    /// The columns' names.
    pub header: Vec<String>,
    /// Rows of as many values.
    pub rows: Vec<Vec<String>>,
}

impl Csv {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// Names the file that cannot be read, and the line that is not as long as the first.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{}, {e}", path.display()).into())
    }

    fn parse(text: &str) -> Result<Self> {
        let fields = |line: &str| line.split(',').map(str::to_string).collect::<Vec<_>>();
        let mut lines = text.lines().map(fields);
        let header = lines
            .next()
            .ok_or("line 1: there are no names of columns")?;
        let rows: Vec<Vec<String>> = lines.collect();
        match rows.iter().position(|row| row.len() != header.len()) {
            Some(i) => {
                let (found, expected) = (rows[i].len(), header.len());
                Err(format!("line {}: {found} values instead of {expected}", i + 2).into())
            }
            None => Ok(Self { header, rows }),
        }
    }

    /// The queries that were measured, by their names in the first column.
    ///
    /// # Errors
    /// Names the column that is not there, or the line in which it has no number.
    pub fn lines(&self) -> Result<Vec<Line>> {
        let (horton, stock) = (
            self.column("horton_median_ms")?,
            self.column("stock_median_ms")?,
        );
        let best = |side: &str| {
            // sql_bench's times without another name are its best.
            let column = self.column(&format!("{side}_best_ms"));
            column.or_else(|_| self.column(&format!("{side}_ms")))
        };
        let (horton_best, stock_best) = (best("horton")?, best("stock")?);
        let (joins, differences) = (self.column("device_joins")?, self.column("differences")?);
        let line = |(i, row): (usize, &Vec<String>)| {
            // Times are rounded, so that a best one may be above its median.
            let over_best = |median: usize, best: usize| -> Result<f64> {
                let ratio = self.number::<f64>(i, median)? / self.number::<f64>(i, best)?;
                Ok(ratio.max(1.0))
            };
            let has_stock = !row[stock].is_empty();
            let noise = over_best(horton, horton_best)?;
            Ok(Line {
                query: row[0].clone(),
                horton: self.number(i, horton)?,
                stock: match has_stock {
                    true => Some(self.number(i, stock)?),
                    false => None,
                },
                noise: match has_stock {
                    true => noise.max(over_best(stock, stock_best)?),
                    false => noise,
                },
                device_joins: self.number(i, joins)?,
                differences: self.number(i, differences)?,
            })
        };
        self.rows.iter().enumerate().map(line).collect()
    }

    /// Times of the queries that did not fail and were not stopped, by their names in the first
    /// column.
    ///
    /// # Errors
    /// Names the column that is not there, or the line in which it has no number.
    pub fn times(&self) -> Result<Times> {
        let (ms, status) = (self.column("ms")?, self.column("status")?);
        let rows = self.rows.iter().enumerate();
        let ended = rows.filter(|(_, row)| row[status] == "ok");
        ended
            .map(|(i, row)| Ok((row[0].clone(), self.number(i, ms)?)))
            .collect()
    }

    fn column(&self, name: &str) -> Result<usize> {
        let column = self.header.iter().position(|column| column == name);
        Ok(column.ok_or_else(|| format!("line 1: there is no column '{name}'"))?)
    }

    fn number<T: std::str::FromStr>(&self, row: usize, column: usize) -> Result<T> {
        let text = &self.rows[row][column];
        text.parse().map_err(|_| {
            let (line, name) = (row + 2, &self.header[column]);
            format!("line {line}: '{text}' is no number of column '{name}'").into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "query,device_joins,stock_median_ms,horton_median_ms,stock_best_ms,\
        horton_best_ms,differences\nq1,0,10.0,10.0,10.0,10.0,0\nq2,1,20.0,30.0,10.0,20.0,0\n\
        q3,1,,5.0,,4.0,1\nq4,2,40.0,10.0,40.0,8.0,0\n";

    fn lines() -> Vec<Line> {
        Csv::parse(TEXT).unwrap().lines().unwrap()
    }

    #[test]
    fn columns_are_found_by_name() {
        let lines = lines();
        assert_eq!((lines.len(), lines[2].stock), (4, None));
        let q2 = Line {
            query: "q2".to_string(),
            horton: 30.0,
            stock: Some(20.0),
            noise: 2.0,
            device_joins: 1,
            differences: 0,
        };
        assert_eq!((lines[1].clone(), lines[1].ratio()), (q2, Some(1.5)));
    }

    #[test]
    fn noise_is_that_of_the_side_that_varies_more() {
        let noise: Vec<f64> = lines().iter().map(|line| line.noise).collect();
        assert_eq!(noise, [1.0, 2.0, 1.25, 1.25]);
        let rounded = TEXT.replace("q1,0,10.0,10.0,10.0,10.0", "q1,0,10.0,10.0,10.02,10.01");
        assert_eq!(Csv::parse(&rounded).unwrap().lines().unwrap()[0].noise, 1.0);
        let of_sql_bench = TEXT.replace("_best_ms", "_ms");
        let lines = Csv::parse(&of_sql_bench).unwrap().lines().unwrap();
        assert_eq!(lines[1].noise, 2.0);
    }

    #[test]
    fn times_are_those_of_queries_that_ended() {
        let text = "query,order,engine,ms,status,differences\nq1,0,bloom,2.5,ok,0\n\
            q2,0,bloom,60000,stopped,0\nq3,0,bloom,,failed,0\n";
        let times = Csv::parse(text).unwrap().times().unwrap();
        assert_eq!(times, Times::from([("q1".to_string(), 2.5)]));
    }

    #[test]
    fn the_worst_is_first() {
        let lines = lines();
        let order: Vec<&str> = worst_first(&lines)
            .iter()
            .map(|l| l.query.as_str())
            .collect();
        assert_eq!(order, ["q2", "q1", "q4", "q3"]);
    }

    #[test]
    fn sums_are_over_what_both_have() {
        let sums_of_stock = sums(&lines(), |line| line.stock);
        assert_eq!(
            (sums_of_stock.queries, sums_of_stock.ratio()),
            (3, Some(50.0 / 70.0))
        );
        assert_eq!(sums(&lines(), |_| None).ratio(), None);
    }

    #[test]
    fn errors_say_where() {
        let of = |text: &str| Csv::parse(text).and_then(|csv| csv.lines());
        let error = |text: &str| of(text).unwrap_err().to_string();
        assert!(error("").contains("line 1"));
        assert!(error("query,horton_median_ms").contains("'stock_median_ms'"));
        assert!(error(&TEXT.replace("30.0", "x")).contains("line 3: 'x' is no number"));
        let medians = TEXT.replace("_best_ms", "_worst_ms");
        assert!(error(&medians).contains("'horton_ms'"));
        assert!(error(&TEXT.replace("q4,2,", "q4,")).contains("line 5: 6 values"));
    }
}
