//! Tables that the crate's files read and the crate does not have.
//!
//! Those that can be made up here: the files fix what is in them (a few rows of results), or
//! only their columns and order (plans). Files that read DataFusion's larger samples are not
//! in the default set.

use std::fmt::Write;

/// Paths below DataFusion's `core/tests` folder, and contents.
pub fn tables() -> Vec<(&'static str, String)> {
    let small = SMALL.iter().map(|(path, text)| (*path, (*text).to_owned()));
    let made = [
        ("data/window_2.csv", window()),
        ("data/aggregate_simple.csv", aggregate_simple()),
        ("data/recursive_cte/prices.csv", prices()),
    ];
    small.chain(made).collect()
}

const SMALL: [(&str, &str); 8] = [
    (
        "data/recursive_cte/balance.csv",
        "time,name,account_balance\n1,John,100\n1,Tim,200\n2,John,300\n2,Tim,400\n",
    ),
    (
        "data/recursive_cte/growth.csv",
        "name,account_growth\nJohn,3\nTim,20\n",
    ),
    (
        "data/recursive_cte/sales.csv",
        "salesperson_id,sale_amount\n4,700\n5,600\n6,500\n7,900\n",
    ),
    (
        "data/recursive_cte/salespersons.csv",
        "salesperson_id,manager_id\n1,\n2,1\n3,1\n4,2\n5,2\n6,3\n7,3\n",
    ),
    (
        "data/recursive_cte/closure.csv",
        "start,end\n1,2\n2,3\n2,4\n4,1\n",
    ),
    (
        "tpch-csv/customer.csv",
        "c_custkey,c_name,c_address,c_nationkey,c_phone,c_acctbal,c_mktsegment,c_comment\n\
         1,a,b,15,c,711.56,d,e\n\
         2,a,b,13,c,121.65,d,e\n",
    ),
    (
        "tpch-csv/orders.csv",
        "o_orderkey,o_custkey,o_orderstatus,o_totalprice,o_orderdate,o_orderpriority,o_clerk,\
         o_shippriority,o_comment\n\
         1,1,O,100.00,1996-01-02,a,b,0,c\n\
         2,1,O,200.00,1996-12-01,a,b,0,c\n\
         3,2,F,300.00,1993-10-14,a,b,0,c\n",
    ),
    (
        "tpch-csv/lineitem.csv",
        "l_orderkey,l_partkey,l_suppkey,l_linenumber,l_quantity,l_extendedprice,l_discount,l_tax,\
         l_returnflag,l_linestatus,l_shipdate,l_commitdate,l_receiptdate,l_shipinstruct,\
         l_shipmode,l_comment\n\
         1,1,1,1,17,50.00,0.04,0.02,N,F,1996-03-13,1996-02-12,1996-03-22,a,b,c\n\
         2,2,1,1,38,60.00,0.00,0.05,N,O,1997-01-28,1997-01-14,1997-02-02,a,b,c\n\
         3,3,1,1,45,70.00,0.06,0.00,R,F,1994-02-02,1994-01-04,1994-02-23,a,b,c\n",
    ),
];

/// 100 rows in the order of (a, b, c), of c, and with d as `join_disable_repartition_joins`
/// needs it: 0 in its first five results, 3 in three rows of b = 0 and five of b = 1.
fn window() -> String {
    let d = |c: u32| match c {
        0 | 2 | 3 | 6 | 20 => 0,
        7 | 15 | 23 => 3,
        25.. if c.is_multiple_of(5) => 3,
        _ => 1 + c % 2,
    };
    let row = |c: u32| format!("1,{},{},{c},{}", c / 50, c / 25, d(c));
    lines("a0,a,b,c,d", (0..100).map(row))
}

/// Row n of 5 comes n times.
fn aggregate_simple() -> String {
    let row = |n: u32| format!("0.0000{n},0.00000000000{n},{}", n % 2 == 1);
    let rows = (1..=5).flat_map(|n| (0..n).map(move |_| row(n)));
    lines("c1,c2,c3", rows)
}

fn prices() -> String {
    lines(
        "product,prices_row_num",
        (1..=100).map(|n| format!("a,{n}")),
    )
}

fn lines(header: &str, rows: impl Iterator<Item = String>) -> String {
    rows.fold(format!("{header}\n"), |mut text, row| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{row}");
        text
    })
}
