//! Many-join queries over a star schema, checked against the stock joins.
//!
//! ```text
//!   date_dim  time_dim   item   promotion      customer ─▶ customer_address
//!       ▲         ▲       ▲        ▲            ▲    └───▶ …_demographics (2)
//!   store_sales  store_returns  catalog_sales  web_sales  inventory
//!       └──▶ store     └─(ticket, item)─▶ store_sales      └──▶ warehouse, ship_mode
//! ```
//!
//! Tables and queries are modelled on those of TPC-DS (the Q-numbers beside them), small and
//! generated from a fixed seed. Foreign keys are skewed, some NULL and some without a row to
//! point at; keys are `Int32` in some tables and `Int64` in others, strings `Utf8` or
//! `Utf8View`. Every query runs in a plain session and in three with device joins: one table
//! for all partitions, of the side planned or of the one that ends first, and partitions kept.
//! Results are compared as multisets; there are no floating-point numbers in them, so equal means
//! equal.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, RecordBatch, StringArray, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::HortonJoinExec;
use horton_join::config::HortonConfig;
use horton_join::join::decide::Decision;
use horton_join::join::sides::Side;
use rand_mt::Mt;

// ---------------------------------------------------------------- data

struct Random(Mt);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.next_u32() as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number below `n`, small ones more often.
    fn skewed(&mut self, n: usize) -> usize {
        self.below(n).min(self.below(n))
    }

    /// A foreign key to a table of `n` rows: NULL, or none of its keys, now and then.
    fn key(&mut self, n: usize) -> Option<i32> {
        match self.below(40) {
            0 | 1 => None,
            2 => Some((n + 1 + self.below(30)) as i32),
            _ => Some(1 + self.skewed(n) as i32),
        }
    }

    fn pick(&mut self, words: &[&'static str]) -> Option<&'static str> {
        (!self.one_in(30)).then(|| words[self.skewed(words.len())])
    }
}

/// A table in the making; its columns' values come row by row.
struct Table {
    name: &'static str,
    rows: usize,
    columns: Vec<(&'static str, ArrayRef)>,
}

impl Table {
    /// A table whose first column numbers its rows from 1.
    fn dimension(name: &'static str, key: &'static str, rows: usize) -> Self {
        Self::new(name, rows).int(key, |row| Some(row as i32 + 1))
    }

    fn new(name: &'static str, rows: usize) -> Self {
        let columns = Vec::new();
        Self {
            name,
            rows,
            columns,
        }
    }

    fn add(mut self, name: &'static str, column: ArrayRef) -> Self {
        self.columns.push((name, column));
        self
    }

    fn int(self, name: &'static str, value: impl FnMut(usize) -> Option<i32>) -> Self {
        let column: Int32Array = (0..self.rows).map(value).collect();
        self.add(name, Arc::new(column))
    }

    fn text<S: AsRef<str>>(
        self,
        name: &'static str,
        value: impl FnMut(usize) -> Option<S>,
    ) -> Self {
        let column: StringArray = (0..self.rows).map(value).collect();
        self.add(name, Arc::new(column))
    }

    fn view<S: AsRef<str>>(
        self,
        name: &'static str,
        value: impl FnMut(usize) -> Option<S>,
    ) -> Self {
        let column: StringViewArray = (0..self.rows).map(value).collect();
        self.add(name, Arc::new(column))
    }

    /// Values in cents.
    fn money(self, name: &'static str, value: impl FnMut(usize) -> Option<usize>) -> Self {
        let cents = (0..self.rows).map(value).map(|v| v.map(|v| v as i128));
        let column = Decimal128Array::from_iter(cents);
        self.add(
            name,
            Arc::new(column.with_precision_and_scale(9, 2).unwrap()),
        )
    }

    /// Days since 1970.
    fn date(self, name: &'static str, value: impl FnMut(usize) -> Option<i32>) -> Self {
        let column: Date32Array = (0..self.rows).map(value).collect();
        self.add(name, Arc::new(column))
    }

    /// The same table with its `Int32` columns as `Int64`.
    fn wide(mut self) -> Self {
        for (_, column) in &mut self.columns {
            if column.data_type() == &DataType::Int32 {
                *column = cast(column, &DataType::Int64).unwrap();
            }
        }
        self
    }

    /// Registers the table in 3 partitions of batches of at most `batch` rows.
    fn register(&self, sessions: &[SessionContext], batch: usize) {
        let all = RecordBatch::try_from_iter_with_nullable(
            self.columns.iter().map(|(n, c)| (*n, Arc::clone(c), true)),
        )
        .unwrap();
        let mut partitions = vec![Vec::new(); 3];
        for (i, start) in (0..self.rows).step_by(batch).enumerate() {
            partitions[i % 3].push(all.slice(start, batch.min(self.rows - start)));
        }
        for session in sessions {
            let table = MemTable::try_new(all.schema(), partitions.clone()).unwrap();
            session.register_table(self.name, Arc::new(table)).unwrap();
        }
    }
}

const DATES: usize = 485;
const TIMES: usize = 240;
const ITEMS: usize = 300;
const CUSTOMERS: usize = 400;
const ADDRESSES: usize = 200;
const CDEMOS: usize = 120;
const HDEMOS: usize = 60;
const STORES: usize = 20;
const WAREHOUSES: usize = 20;
const PROMOTIONS: usize = 50;
const SHIP_MODES: usize = 20;

const CITIES: [&str; 8] = [
    "Fairview",
    "Midway",
    "Oakdale",
    "Springfield",
    "Riverside",
    "Union",
    "Salem",
    "Marion",
];
const STATES: [&str; 6] = ["TX", "OH", "OR", "NM", "KY", "VA"];

/// `(year, month, day)` from 1999-01-01 on.
fn calendar() -> Vec<(i32, i32, i32)> {
    let months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut days = Vec::new();
    for year in [1999, 2000] {
        for (month, length) in (1..).zip(months) {
            let leap = i32::from(year == 2000 && month == 2);
            days.extend((1..=length + leap).map(|day| (year, month, day)));
        }
    }
    days.truncate(DATES);
    days
}

fn date_dim() -> Table {
    let days = calendar();
    let names = [
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
    ];
    Table::dimension("date_dim", "d_date_sk", days.len())
        .date("d_date", |row| Some(10_592 + row as i32))
        .int("d_year", |row| Some(days[row].0))
        .int("d_moy", |row| Some(days[row].1))
        .int("d_dom", |row| Some(days[row].2))
        .int("d_qoy", |row| Some((days[row].1 - 1) / 3 + 1))
        .int("d_week_seq", |row| Some((row as i32 + 4) / 7))
        .text("d_day_name", |row| Some(names[row % 7]))
}

fn time_dim() -> Table {
    Table::dimension("time_dim", "t_time_sk", TIMES)
        .int("t_hour", |row| Some(row as i32 / 10))
        .int("t_minute", |row| Some(row as i32 % 10 * 6))
        .text("t_meal_time", |row| match row / 10 {
            6..=8 => Some("breakfast"),
            12..=13 => Some("lunch"),
            17..=20 => Some("dinner"),
            _ => None,
        })
}

fn item(r: &mut Random) -> Table {
    let categories = ["Music", "Books", "Home", "Sports", "Shoes", "Jewelry"];
    let classes = ["rock", "classical", "fiction", "bedding", "golf"];
    Table::dimension("item", "i_item_sk", ITEMS)
        // Two versions of each item share their id.
        .text("i_item_id", |row| Some(format!("ITEM{:06}", row / 2)))
        .int("i_brand_id", |_| Some(1 + r.below(25) as i32))
        .view("i_brand", |row| {
            Some(format!("a brand with a long name #{}", row % 25))
        })
        .view("i_class", |_| r.pick(&classes))
        .text("i_category", |_| r.pick(&categories))
        .int("i_manufact_id", |_| r.key(40))
        .int("i_manager_id", |_| Some(1 + r.below(40) as i32))
        .money("i_current_price", |_| Some(99 + r.below(9900)))
        .text("i_color", |_| {
            r.pick(&["red", "slate", "puff", "snow", "lace"])
        })
}

fn customer(r: &mut Random) -> Table {
    let first = ["Ann", "Bo", "Carla", "Dan", "Éva", "Finn", "Gül"];
    let last = ["Smith", "Müller", "Jones", "Lee", "Brown", "Nowak"];
    Table::dimension("customer", "c_customer_sk", CUSTOMERS)
        .text("c_customer_id", |row| Some(format!("CUSTOMER{row:08}")))
        .int("c_current_addr_sk", |_| r.key(ADDRESSES))
        .int("c_current_cdemo_sk", |_| r.key(CDEMOS))
        .int("c_current_hdemo_sk", |_| r.key(HDEMOS))
        .int("c_first_sales_date_sk", |_| r.key(DATES))
        .text("c_first_name", |_| r.pick(&first))
        .view("c_last_name", |_| r.pick(&last))
        .int("c_birth_month", |_| Some(1 + r.below(12) as i32))
}

fn customer_address(r: &mut Random) -> Table {
    Table::dimension("customer_address", "ca_address_sk", ADDRESSES)
        .text("ca_city", |_| r.pick(&CITIES))
        .text("ca_state", |_| r.pick(&STATES))
        .text("ca_zip", |_| Some(format!("{:05}", 35_000 + r.below(60))))
        .money("ca_gmt_offset", |_| {
            (!r.one_in(9)).then(|| 500 + 100 * r.below(3))
        })
}

fn demographics(r: &mut Random) -> [Table; 2] {
    let customers = Table::dimension("customer_demographics", "cd_demo_sk", CDEMOS)
        .text("cd_gender", |row| Some(["M", "F"][row % 2]))
        .text("cd_marital_status", |_| r.pick(&["M", "S", "D", "W"]))
        .view("cd_education_status", |_| {
            r.pick(&["College", "Primary", "Advanced Degree", "Unknown"])
        })
        .int("cd_dep_count", |_| Some(r.below(6) as i32));
    let households = Table::dimension("household_demographics", "hd_demo_sk", HDEMOS)
        .text("hd_buy_potential", |_| {
            r.pick(&["0-500", ">10000", "Unknown"])
        })
        .int("hd_dep_count", |_| Some(r.below(7) as i32))
        .int("hd_vehicle_count", |_| r.key(4));
    [customers, households.wide()]
}

fn places(r: &mut Random) -> [Table; 2] {
    let stores = Table::dimension("store", "s_store_sk", STORES)
        .text("s_store_id", |row| Some(format!("STORE{}", row / 2)))
        .view("s_store_name", |row| {
            Some(["ought", "able", "ese", "anti"][row % 4])
        })
        .text("s_city", |_| r.pick(&CITIES))
        .view("s_state", |_| r.pick(&STATES))
        .view("s_zip", |_| Some(format!("{:05}", 35_000 + r.below(60))))
        .money("s_gmt_offset", |_| {
            (!r.one_in(9)).then(|| 500 + 100 * r.below(3))
        })
        .int("s_number_employees", |_| Some(200 + r.below(100) as i32));
    let warehouses = Table::dimension("warehouse", "w_warehouse_sk", WAREHOUSES)
        .text("w_warehouse_name", |row| {
            Some(format!("a warehouse named {row}"))
        })
        .text("w_city", |_| r.pick(&CITIES))
        .text("w_state", |_| r.pick(&STATES));
    [stores, warehouses.wide()]
}

fn small_dimensions(r: &mut Random) -> [Table; 2] {
    let promotions = Table::dimension("promotion", "p_promo_sk", PROMOTIONS)
        .text("p_channel_email", |_| r.pick(&["N", "Y"]))
        .text("p_channel_event", |_| r.pick(&["N", "Y"]))
        .int("p_item_sk", |_| r.key(ITEMS));
    let modes = Table::dimension("ship_mode", "sm_ship_mode_sk", SHIP_MODES)
        .text("sm_type", |_| r.pick(&["EXPRESS", "OVERNIGHT", "REGULAR"]))
        .text("sm_carrier", |row| Some(["UPS", "DHL", "MSC"][row % 3]));
    [promotions, modes]
}

/// Store sales, and returns of which most are of one of those sales.
fn store_facts(r: &mut Random) -> [Table; 2] {
    let (sales, returns) = (6000, 3000);
    let customers: Vec<_> = (0..sales / 4).map(|_| r.key(CUSTOMERS)).collect();
    let items: Vec<_> = (0..sales).map(|_| r.key(ITEMS)).collect();
    let dates: Vec<_> = (0..sales).map(|_| r.key(DATES)).collect();
    let sold = Table::new("store_sales", sales)
        .int("ss_sold_date_sk", |row| dates[row])
        .int("ss_sold_time_sk", |_| r.key(TIMES))
        .int("ss_item_sk", |row| items[row])
        // Four items to a ticket.
        .int("ss_ticket_number", |row| Some(row as i32 / 4))
        .int("ss_customer_sk", |row| customers[row / 4])
        .int("ss_cdemo_sk", |_| r.key(CDEMOS))
        .int("ss_hdemo_sk", |_| r.key(HDEMOS))
        .int("ss_addr_sk", |_| r.key(ADDRESSES))
        .int("ss_store_sk", |_| r.key(STORES))
        .int("ss_promo_sk", |_| r.key(PROMOTIONS))
        .int("ss_quantity", |_| Some(1 + r.below(100) as i32))
        .money("ss_sales_price", |_| Some(r.below(20_000)))
        .money("ss_ext_sales_price", |_| {
            (!r.one_in(25)).then(|| r.below(90_000))
        })
        .money("ss_net_profit", |_| Some(r.below(30_000)));
    let of: Vec<usize> = (0..returns).map(|_| r.below(sales)).collect();
    let later = |date: Option<i32>, days: usize| date.map(|date| date + days as i32);
    let returned = Table::new("store_returns", returns)
        .int("sr_returned_date_sk", |row| {
            later(dates[of[row]], r.below(60))
        })
        .int("sr_item_sk", |row| match r.one_in(10) {
            true => r.key(ITEMS),
            false => items[of[row]],
        })
        .int("sr_ticket_number", |row| Some(of[row] as i32 / 4))
        .int("sr_customer_sk", |row| customers[of[row] / 4])
        .int("sr_cdemo_sk", |_| r.key(CDEMOS))
        .int("sr_store_sk", |_| r.key(STORES))
        .int("sr_return_quantity", |_| {
            (!r.one_in(20)).then(|| 1 + r.below(50) as i32)
        })
        .money("sr_return_amt", |_| Some(r.below(20_000)));
    [sold, returned.wide()]
}

fn catalog_sales(r: &mut Random) -> Table {
    let sold: Vec<_> = (0..5000).map(|_| r.key(DATES)).collect();
    Table::new("catalog_sales", sold.len())
        .int("cs_sold_date_sk", |row| sold[row])
        .int("cs_ship_date_sk", |row| {
            sold[row].map(|d| d + r.below(130) as i32)
        })
        .int("cs_item_sk", |_| r.key(ITEMS))
        .int("cs_order_number", |row| Some(row as i32 / 3))
        .int("cs_bill_customer_sk", |_| r.key(CUSTOMERS))
        .int("cs_bill_cdemo_sk", |_| r.key(CDEMOS))
        .int("cs_bill_hdemo_sk", |_| r.key(HDEMOS))
        .int("cs_warehouse_sk", |_| r.key(WAREHOUSES))
        .int("cs_ship_mode_sk", |_| r.key(SHIP_MODES))
        .int("cs_promo_sk", |_| r.key(PROMOTIONS))
        .int("cs_quantity", |_| Some(1 + r.below(100) as i32))
        .money("cs_ext_sales_price", |_| Some(r.below(90_000)))
        .money("cs_ext_discount_amt", |_| Some(r.skewed(40_000)))
        .money("cs_net_profit", |_| Some(r.below(30_000)))
}

fn web_sales(r: &mut Random) -> Table {
    Table::new("web_sales", 4000)
        .int("ws_sold_date_sk", |_| r.key(DATES))
        .int("ws_sold_time_sk", |_| r.key(TIMES))
        .int("ws_item_sk", |_| r.key(ITEMS))
        .int("ws_order_number", |row| Some(row as i32 / 3))
        .int("ws_bill_customer_sk", |_| r.key(CUSTOMERS))
        .int("ws_ship_addr_sk", |_| r.key(ADDRESSES))
        .int("ws_ship_mode_sk", |_| r.key(SHIP_MODES))
        .int("ws_warehouse_sk", |_| r.key(WAREHOUSES))
        .int("ws_promo_sk", |_| r.key(PROMOTIONS))
        .int("ws_quantity", |_| Some(1 + r.below(100) as i32))
        .money("ws_ext_sales_price", |_| Some(r.below(90_000)))
        .money("ws_net_profit", |_| Some(r.below(30_000)))
        .wide()
}

fn inventory(r: &mut Random) -> Table {
    Table::new("inventory", 3000)
        .int("inv_date_sk", |_| r.key(DATES))
        .int("inv_item_sk", |_| r.key(ITEMS))
        .int("inv_warehouse_sk", |_| r.key(WAREHOUSES))
        .int("inv_quantity_on_hand", |_| r.key(500))
}

fn register_all(sessions: &[SessionContext]) {
    let r = &mut Random(Mt::new(1_234_567));
    let mut tables = vec![date_dim(), time_dim(), item(r), customer(r)];
    tables.push(customer_address(r));
    tables.extend(demographics(r));
    tables.extend(places(r));
    tables.extend(small_dimensions(r));
    tables.extend(store_facts(r));
    tables.extend([catalog_sales(r), web_sales(r), inventory(r)]);
    for table in &tables {
        table.register(sessions, if table.rows > 1000 { 450 } else { 64 });
    }
}

// ---------------------------------------------------------------- queries

/// What the query is, and the query.
const QUERIES: &[(&str, &str)] = &[
    (
        "Q3: brands of some manufacturers in November",
        "SELECT d_year, i_brand_id, i_brand, sum(ss_ext_sales_price) AS revenue
         FROM store_sales
         JOIN date_dim ON ss_sold_date_sk = d_date_sk
         JOIN item ON ss_item_sk = i_item_sk
         JOIN store ON ss_store_sk = s_store_sk
         WHERE d_moy = 11 AND i_manufact_id < 30
         GROUP BY d_year, i_brand_id, i_brand",
    ),
    (
        "Q7: averages of what one group of customers bought, promoted or not",
        "SELECT i_item_id, sum(ss_quantity), avg(ss_sales_price), avg(ss_net_profit)
         FROM store_sales
         JOIN customer_demographics ON ss_cdemo_sk = cd_demo_sk
         JOIN date_dim ON ss_sold_date_sk = d_date_sk
         JOIN item ON ss_item_sk = i_item_sk
         JOIN promotion ON ss_promo_sk = p_promo_sk
         WHERE cd_gender = 'M' AND cd_marital_status = 'M' AND d_year = 1999
           AND (p_channel_email = 'N' OR p_channel_event = 'N')
         GROUP BY i_item_id",
    ),
    (
        "Q13: residual filters with alternatives over several dimensions",
        "SELECT sum(ss_quantity), avg(ss_ext_sales_price), count(*)
         FROM store_sales
         JOIN store ON s_store_sk = ss_store_sk
         JOIN date_dim ON ss_sold_date_sk = d_date_sk
         JOIN household_demographics ON ss_hdemo_sk = hd_demo_sk
         JOIN customer_demographics ON cd_demo_sk = ss_cdemo_sk
           AND (cd_marital_status = 'M' AND ss_sales_price > 100 AND hd_dep_count = 3
             OR cd_marital_status = 'S' AND ss_sales_price < 150 AND hd_dep_count < 3
             OR cd_marital_status = 'D' AND hd_dep_count > 4)
         JOIN customer_address ON ss_addr_sk = ca_address_sk
           AND (ca_state IN ('TX', 'OH') AND ss_net_profit > 50
             OR ca_state IN ('OR', 'NM') AND ss_net_profit < 250)",
    ),
    (
        "Q17: bought, brought back, bought again by catalog",
        "SELECT i_item_id, s_state, count(*), sum(ss_quantity), sum(sr_return_quantity),
                sum(cs_quantity)
         FROM store_sales
         JOIN store_returns ON ss_customer_sk = sr_customer_sk AND ss_item_sk = sr_item_sk
           AND ss_ticket_number = sr_ticket_number
         JOIN catalog_sales ON sr_customer_sk = cs_bill_customer_sk
         JOIN date_dim d1 ON d1.d_date_sk = ss_sold_date_sk
         JOIN date_dim d2 ON d2.d_date_sk = sr_returned_date_sk
         JOIN date_dim d3 ON d3.d_date_sk = cs_sold_date_sk
         JOIN item ON i_item_sk = ss_item_sk
         JOIN store ON s_store_sk = ss_store_sk
         WHERE d1.d_qoy = 1 AND d2.d_qoy IN (1, 2) AND d3.d_qoy = 2
         GROUP BY i_item_id, s_state",
    ),
    (
        "Q19: brands sold in stores away from the customer's home",
        "SELECT i_brand_id, i_brand, i_manufact_id, sum(ss_ext_sales_price)
         FROM date_dim, store_sales, item, customer, customer_address, store
         WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id < 20
           AND ss_customer_sk = c_customer_sk AND c_current_addr_sk = ca_address_sk
           AND substr(ca_zip, 1, 4) <> substr(s_zip, 1, 4) AND ss_store_sk = s_store_sk
         GROUP BY i_brand_id, i_brand, i_manufact_id",
    ),
    (
        "Q25: profit and loss of an item that came back",
        "SELECT i_item_id, s_store_id, sum(ss_net_profit), sum(sr_return_amt),
                min(d2.d_date), max(d2.d_date)
         FROM store_sales, store_returns, date_dim d1, date_dim d2, store, item
         WHERE d1.d_moy < 7 AND d1.d_date_sk = ss_sold_date_sk AND i_item_sk = ss_item_sk
           AND s_store_sk = ss_store_sk AND ss_customer_sk = sr_customer_sk
           AND ss_item_sk = sr_item_sk AND ss_ticket_number = sr_ticket_number
           AND sr_returned_date_sk = d2.d_date_sk AND d2.d_date > d1.d_date
         GROUP BY i_item_id, s_store_id",
    ),
    (
        "Q29: the same customer's quantities by store, return and web",
        "SELECT i_item_id, c_last_name, sum(ss_quantity), sum(sr_return_quantity),
                sum(ws_quantity)
         FROM store_returns
         LEFT JOIN store_sales ON ss_ticket_number = sr_ticket_number
           AND ss_item_sk = sr_item_sk AND sr_return_quantity <= ss_quantity
         JOIN web_sales ON ws_bill_customer_sk = sr_customer_sk AND ws_item_sk > sr_item_sk
         JOIN customer ON c_customer_sk = sr_customer_sk
         JOIN item ON i_item_sk = ws_item_sk
         WHERE i_category = 'Books'
         GROUP BY i_item_id, c_last_name",
    ),
    (
        "Q42 and Q52: categories of a month, with the hour",
        "SELECT d_year, i_category, t_hour, sum(ss_ext_sales_price)
         FROM date_dim
         JOIN store_sales ON d_date_sk = ss_sold_date_sk
         JOIN item ON ss_item_sk = i_item_sk
         JOIN time_dim ON t_time_sk = ss_sold_time_sk
         WHERE d_moy = 2 AND i_manager_id < 25
         GROUP BY d_year, i_category, t_hour",
    ),
    (
        "Q43: stores by day of the week",
        "SELECT s_store_name, s_store_id,
                sum(CASE WHEN d_day_name = 'Sunday' THEN ss_sales_price END),
                sum(CASE WHEN d_day_name = 'Friday' THEN ss_sales_price END)
         FROM store
         JOIN store_sales ON s_store_sk = ss_store_sk
         JOIN date_dim ON d_date_sk = ss_sold_date_sk
         JOIN customer_address ON ca_address_sk = ss_addr_sk AND ca_gmt_offset = s_gmt_offset
         GROUP BY s_store_name, s_store_id",
    ),
    (
        "Q61: promoted and all revenue, two scalar subqueries",
        "SELECT promoted, total, promoted < total FROM
           (SELECT
             (SELECT sum(ss_ext_sales_price) FROM store_sales
              JOIN promotion ON ss_promo_sk = p_promo_sk
              JOIN item ON ss_item_sk = i_item_sk
              WHERE i_category = 'Music' AND p_channel_event = 'Y') AS promoted,
             (SELECT sum(ss_ext_sales_price) FROM store_sales
              JOIN item ON ss_item_sk = i_item_sk
              WHERE i_category = 'Music') AS total)",
    ),
    (
        "Q65: items that sell far below a store's average",
        "WITH revenues AS
           (SELECT ss_store_sk, ss_item_sk, sum(ss_sales_price) AS revenue
            FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
            WHERE d_year = 1999 GROUP BY ss_store_sk, ss_item_sk)
         SELECT s_store_name, i_item_id, r.revenue, i_current_price
         FROM revenues r
         JOIN (SELECT ss_store_sk, avg(revenue) AS average FROM revenues GROUP BY ss_store_sk) a
           ON a.ss_store_sk = r.ss_store_sk AND r.revenue <= 0.3 * a.average
         JOIN store ON s_store_sk = r.ss_store_sk
         JOIN item ON i_item_sk = r.ss_item_sk",
    ),
    (
        "Q72: too little in the warehouse in the week of the order, nine joins",
        "SELECT i_item_id, w_warehouse_name, d1.d_week_seq, count(p_promo_sk), count(*)
         FROM catalog_sales
         JOIN inventory ON cs_item_sk = inv_item_sk
         JOIN warehouse ON w_warehouse_sk = inv_warehouse_sk
         JOIN item ON i_item_sk = cs_item_sk
         JOIN customer_demographics ON cs_bill_cdemo_sk = cd_demo_sk
         JOIN household_demographics ON cs_bill_hdemo_sk = hd_demo_sk
         JOIN date_dim d1 ON cs_sold_date_sk = d1.d_date_sk
         JOIN date_dim d2 ON inv_date_sk = d2.d_date_sk AND d1.d_week_seq = d2.d_week_seq
         JOIN date_dim d3 ON cs_ship_date_sk = d3.d_date_sk AND d3.d_date > d1.d_date
         LEFT JOIN promotion ON cs_promo_sk = p_promo_sk AND p_channel_email = 'Y'
         WHERE inv_quantity_on_hand < 5 * cs_quantity
         GROUP BY i_item_id, w_warehouse_name, d1.d_week_seq",
    ),
    (
        "Q79: tickets of large households and who paid them",
        "SELECT c_last_name, c_first_name, s_city, ticket, amount
         FROM (SELECT ss_ticket_number AS ticket, ss_customer_sk AS buyer, s_city,
                      sum(ss_net_profit) AS amount
               FROM store_sales, date_dim, store, household_demographics
               WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk
                 AND ss_hdemo_sk = hd_demo_sk AND (hd_dep_count = 6 OR hd_vehicle_count > 2)
                 AND s_number_employees BETWEEN 200 AND 295
               GROUP BY ss_ticket_number, ss_customer_sk, s_city)
         JOIN customer ON buyer = c_customer_sk",
    ),
    (
        "Q85: returns by people like the buyer",
        "SELECT cd1.cd_education_status, count(*), sum(ss_quantity), sum(sr_return_amt)
         FROM store_sales
         JOIN store_returns ON ss_item_sk = sr_item_sk AND ss_ticket_number = sr_ticket_number
         JOIN customer_demographics cd1 ON cd1.cd_demo_sk = ss_cdemo_sk
         JOIN customer_demographics cd2 ON cd2.cd_demo_sk = sr_cdemo_sk
           AND cd1.cd_marital_status = cd2.cd_marital_status
           AND cd1.cd_education_status = cd2.cd_education_status
         JOIN customer_address ON ca_address_sk = ss_addr_sk
           AND (ca_state = 'TX' AND ss_net_profit > 100 OR ca_state <> 'TX')
         GROUP BY cd1.cd_education_status",
    ),
    (
        "Q93: what customers kept of what they bought",
        "SELECT ss_customer_sk, s_store_name,
                sum(CASE WHEN sr_return_quantity IS NOT NULL
                    THEN (ss_quantity - sr_return_quantity) * ss_sales_price
                    ELSE ss_quantity * ss_sales_price END)
         FROM store_sales
         LEFT JOIN store_returns ON sr_item_sk = ss_item_sk
           AND sr_ticket_number = ss_ticket_number AND sr_return_quantity < ss_quantity
         LEFT JOIN customer ON ss_customer_sk = c_customer_sk
         LEFT JOIN store ON s_store_sk = ss_store_sk
         GROUP BY ss_customer_sk, s_store_name",
    ),
    (
        "Q95: orders from two warehouses of which something came back",
        "WITH two AS
           (SELECT a.ws_order_number AS number FROM web_sales a
            JOIN web_sales b ON a.ws_order_number = b.ws_order_number
              AND a.ws_warehouse_sk <> b.ws_warehouse_sk)
         SELECT count(DISTINCT ws_order_number), sum(ws_ext_sales_price), sum(ws_net_profit)
         FROM web_sales
         JOIN date_dim ON ws_sold_date_sk = d_date_sk
         JOIN customer_address ON ws_ship_addr_sk = ca_address_sk
         WHERE ca_state = 'TX' AND ws_order_number IN (SELECT number FROM two)
           AND ws_order_number IN
             (SELECT sr_ticket_number FROM store_returns
              JOIN two ON sr_ticket_number = number)",
    ),
    (
        "Q94: orders without a return, from two warehouses",
        "SELECT ws_order_number, count(*), sum(ws_net_profit) FROM web_sales w
         JOIN date_dim ON ws_sold_date_sk = d_date_sk
         JOIN ship_mode ON ws_ship_mode_sk = sm_ship_mode_sk
         WHERE EXISTS (SELECT 1 FROM web_sales o WHERE o.ws_order_number = w.ws_order_number
                       AND o.ws_warehouse_sk <> w.ws_warehouse_sk)
           AND NOT EXISTS (SELECT 1 FROM store_returns WHERE sr_ticket_number = ws_order_number)
         GROUP BY ws_order_number",
    ),
    (
        "Q99: days to ship by warehouse and carrier",
        "SELECT substr(w_warehouse_name, 1, 20), sm_type, sm_carrier,
                sum(CASE WHEN cs_ship_date_sk - cs_sold_date_sk <= 30 THEN 1 ELSE 0 END),
                sum(CASE WHEN cs_ship_date_sk - cs_sold_date_sk > 90 THEN 1 ELSE 0 END)
         FROM catalog_sales
         JOIN warehouse ON cs_warehouse_sk = w_warehouse_sk
         JOIN ship_mode ON cs_ship_mode_sk = sm_ship_mode_sk
         JOIN date_dim ON cs_ship_date_sk = d_date_sk
         GROUP BY w_warehouse_name, sm_type, sm_carrier",
    ),
    (
        "Q1: customers who return more than their store's average",
        "WITH returned AS
           (SELECT sr_customer_sk AS who, sr_store_sk AS place, sum(sr_return_amt) AS amount
            FROM store_returns JOIN date_dim ON sr_returned_date_sk = d_date_sk
            WHERE d_year = 1999 GROUP BY sr_customer_sk, sr_store_sk)
         SELECT c_customer_id, s_store_id, amount FROM returned r
         JOIN store ON s_store_sk = r.place
         JOIN customer ON c_customer_sk = r.who
         WHERE amount > (SELECT avg(amount) * 2 FROM returned x WHERE x.place = r.place)",
    ),
    (
        "Q6: states whose customers buy above a category's average price",
        "SELECT ca_state, count(*) FROM customer_address
         JOIN customer ON ca_address_sk = c_current_addr_sk
         JOIN store_sales ON c_customer_sk = ss_customer_sk
         JOIN item i ON ss_item_sk = i_item_sk
         WHERE i_current_price > (SELECT 1.2 * avg(j.i_current_price) FROM item j
                                  WHERE j.i_category = i.i_category)
         GROUP BY ca_state HAVING count(*) >= 10",
    ),
    (
        "Q10 and Q35: demographics of those who buy in two ways, mark joins",
        "SELECT cd_gender, cd_education_status, count(*)
         FROM customer c
         JOIN customer_demographics ON cd_demo_sk = c_current_cdemo_sk
         WHERE EXISTS (SELECT 1 FROM store_sales WHERE ss_customer_sk = c.c_customer_sk
                       AND ss_quantity > 50)
           AND (EXISTS (SELECT 1 FROM web_sales WHERE ws_bill_customer_sk = c.c_customer_sk)
             OR EXISTS (SELECT 1 FROM catalog_sales WHERE cs_bill_customer_sk = c.c_customer_sk))
         GROUP BY cd_gender, cd_education_status",
    ),
    (
        "Q69: buyers in stores but never on the web",
        "SELECT cd_gender, cd_marital_status, count(*)
         FROM customer c
         JOIN customer_address ON c_current_addr_sk = ca_address_sk
         JOIN customer_demographics ON cd_demo_sk = c_current_cdemo_sk
         WHERE EXISTS (SELECT 1 FROM store_sales WHERE ss_customer_sk = c_customer_sk)
           AND NOT EXISTS (SELECT 1 FROM web_sales WHERE ws_bill_customer_sk = c_customer_sk
                           AND ws_net_profit > 120)
         GROUP BY cd_gender, cd_marital_status",
    ),
    (
        "Q16: NOT IN without NULLs, and one with NULLs that lets nothing through",
        "SELECT w_state, count(*), sum(cs_net_profit)
         FROM catalog_sales
         JOIN warehouse ON cs_warehouse_sk = w_warehouse_sk
         JOIN date_dim ON cs_ship_date_sk = d_date_sk
         WHERE cs_order_number NOT IN
             (SELECT sr_ticket_number FROM store_returns WHERE sr_return_quantity > 25)
         GROUP BY w_state
         UNION ALL
         SELECT 'none', count(*), sum(cs_net_profit) FROM catalog_sales
         WHERE cs_item_sk NOT IN (SELECT inv_item_sk FROM inventory)",
    ),
    (
        "Q32: discounts above an item's average",
        "SELECT i_manufact_id, sum(cs_ext_discount_amt)
         FROM catalog_sales c
         JOIN item ON i_item_sk = cs_item_sk
         JOIN date_dim ON d_date_sk = cs_sold_date_sk
         WHERE cs_ext_discount_amt >
           (SELECT 1.3 * avg(x.cs_ext_discount_amt) FROM catalog_sales x
            JOIN date_dim d ON d.d_date_sk = x.cs_sold_date_sk
            WHERE x.cs_item_sk = c.cs_item_sk AND d.d_moy < 9)
         GROUP BY i_manufact_id",
    ),
    (
        "Q45: sales to some zip codes or of some items",
        "SELECT ca_zip, ca_city, sum(ws_ext_sales_price)
         FROM web_sales
         JOIN customer ON ws_bill_customer_sk = c_customer_sk
         JOIN customer_address ON c_current_addr_sk = ca_address_sk
         JOIN item ON ws_item_sk = i_item_sk
         WHERE substr(ca_zip, 1, 5) IN ('35001', '35017', '35042')
           OR i_item_id IN (SELECT i_item_id FROM item WHERE i_item_sk IN (2, 3, 5, 7, 11, 13))
         GROUP BY ca_zip, ca_city",
    ),
    (
        "Q97: who buys what in stores, by catalog or both",
        "WITH s AS (SELECT ss_customer_sk AS who, ss_item_sk AS what
                    FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
                    WHERE d_year = 1999 GROUP BY ss_customer_sk, ss_item_sk),
              c AS (SELECT cs_bill_customer_sk AS who, cs_item_sk AS what
                    FROM catalog_sales JOIN date_dim ON cs_sold_date_sk = d_date_sk
                    WHERE d_year = 1999 GROUP BY cs_bill_customer_sk, cs_item_sk)
         SELECT sum(CASE WHEN s.who IS NOT NULL AND c.who IS NULL THEN 1 ELSE 0 END),
                sum(CASE WHEN s.who IS NULL AND c.who IS NOT NULL THEN 1 ELSE 0 END),
                sum(CASE WHEN s.who IS NOT NULL AND c.who IS NOT NULL THEN 1 ELSE 0 END), count(*)
         FROM s FULL OUTER JOIN c ON s.who = c.who AND s.what = c.what",
    ),
    (
        "Q51: FULL OUTER JOIN of running totals, with a residual condition",
        "WITH w AS (SELECT ws_item_sk AS i, d_date, sum(sum(ws_ext_sales_price))
                      OVER (PARTITION BY ws_item_sk ORDER BY d_date) AS total
                    FROM web_sales JOIN date_dim ON ws_sold_date_sk = d_date_sk
                    WHERE d_moy < 4 GROUP BY ws_item_sk, d_date),
              s AS (SELECT ss_item_sk AS i, d_date, sum(sum(ss_sales_price))
                      OVER (PARTITION BY ss_item_sk ORDER BY d_date) AS total
                    FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
                    WHERE d_moy < 4 GROUP BY ss_item_sk, d_date)
         SELECT w.i, s.i, w.d_date, s.d_date, w.total, s.total
         FROM w FULL OUTER JOIN s ON w.i = s.i AND w.d_date = s.d_date AND w.total > s.total",
    ),
    (
        "Q78: sales of the year that were not returned, by store and by web",
        "WITH ss AS (SELECT ss_item_sk AS i, ss_customer_sk AS c, sum(ss_quantity) AS q
                     FROM store_sales
                     LEFT JOIN store_returns ON sr_ticket_number = ss_ticket_number
                       AND sr_item_sk = ss_item_sk
                     JOIN date_dim ON ss_sold_date_sk = d_date_sk
                     WHERE sr_ticket_number IS NULL AND d_year = 1999
                     GROUP BY ss_item_sk, ss_customer_sk),
              ws AS (SELECT ws_item_sk AS i, ws_bill_customer_sk AS c, sum(ws_quantity) AS q
                     FROM web_sales JOIN date_dim ON ws_sold_date_sk = d_date_sk
                     WHERE d_year = 1999 GROUP BY ws_item_sk, ws_bill_customer_sk)
         SELECT ss.c, ss.i, ss.q, coalesce(ws.q, 0) FROM ss
         LEFT JOIN ws ON ws.i = ss.i AND ws.c = ss.c
         WHERE ss.q > 60",
    ),
    (
        "Q71: brands by time of the meal in all three facts",
        "SELECT i_brand, t_meal_time, sum(price) FROM
           (SELECT ws_ext_sales_price AS price, ws_sold_date_sk AS day, ws_item_sk AS what,
                   ws_sold_time_sk AS hour FROM web_sales
            UNION ALL
            SELECT ss_ext_sales_price, ss_sold_date_sk, ss_item_sk, ss_sold_time_sk
            FROM store_sales
            UNION ALL
            SELECT cs_ext_sales_price, cs_sold_date_sk, cs_item_sk, cs_quantity
            FROM catalog_sales)
         JOIN item ON what = i_item_sk
         JOIN time_dim ON hour = t_time_sk
         JOIN date_dim ON day = d_date_sk
         WHERE t_meal_time IN ('breakfast', 'dinner') AND d_moy = 3
         GROUP BY i_brand, t_meal_time",
    ),
    (
        "Q76: sales with a missing key, by channel",
        "SELECT channel, missing, d_year, i_category, count(*), sum(price) FROM
           (SELECT 'store' AS channel, 'customer' AS missing, d_year, i_category,
                   ss_ext_sales_price AS price
            FROM store_sales JOIN item ON ss_item_sk = i_item_sk
            JOIN date_dim ON ss_sold_date_sk = d_date_sk WHERE ss_customer_sk IS NULL
            UNION ALL
            SELECT 'web', 'address', d_year, i_category, ws_ext_sales_price
            FROM web_sales JOIN item ON ws_item_sk = i_item_sk
            JOIN date_dim ON ws_sold_date_sk = d_date_sk WHERE ws_ship_addr_sk IS NULL)
         GROUP BY channel, missing, d_year, i_category",
    ),
    (
        "Q8: stores whose zip code is a frequent one, joined on strings",
        "SELECT s_store_name, z.zip, sum(ss_net_profit)
         FROM store_sales
         JOIN date_dim ON ss_sold_date_sk = d_date_sk
         JOIN store ON ss_store_sk = s_store_sk
         JOIN (SELECT ca_zip AS zip FROM customer_address WHERE ca_zip < '35050'
               INTERSECT
               SELECT ca_zip FROM customer_address JOIN customer
                 ON ca_address_sk = c_current_addr_sk
               GROUP BY ca_zip HAVING count(*) > 5) z ON s_zip = z.zip
         GROUP BY s_store_name, z.zip",
    ),
    (
        "Q38 and Q87: names and days in one channel and not in the other",
        "SELECT c_last_name, c_first_name, d_date FROM store_sales
         JOIN customer ON ss_customer_sk = c_customer_sk
         JOIN date_dim ON ss_sold_date_sk = d_date_sk WHERE d_moy = 5
         EXCEPT
         SELECT c_last_name, c_first_name, d_date FROM catalog_sales
         JOIN customer ON cs_bill_customer_sk = c_customer_sk
         JOIN date_dim ON cs_sold_date_sk = d_date_sk",
    ),
    (
        "Q46 and Q68: tickets paid in one city by people who live in another",
        "SELECT c_last_name, bought, here.ca_city, ticket, amount FROM
           (SELECT ss_ticket_number AS ticket, ss_customer_sk AS buyer, ca_city AS bought,
                   sum(ss_ext_sales_price) AS amount
            FROM store_sales
            JOIN store ON ss_store_sk = s_store_sk
            JOIN household_demographics ON ss_hdemo_sk = hd_demo_sk
            JOIN customer_address ON ss_addr_sk = ca_address_sk
            WHERE hd_dep_count = 4 OR hd_vehicle_count = 3
            GROUP BY ss_ticket_number, ss_customer_sk, ca_city)
         JOIN customer ON buyer = c_customer_sk
         JOIN customer_address here ON c_current_addr_sk = here.ca_address_sk
           AND here.ca_city <> bought",
    ),
    (
        "Q64: the same item in the same store in two years, a CTE used twice",
        "WITH sold AS
           (SELECT i_item_id, s_store_name, s_zip, d_year, count(*) AS n,
                   sum(ss_sales_price) AS amount
            FROM store_sales
            JOIN date_dim ON ss_sold_date_sk = d_date_sk
            JOIN store ON ss_store_sk = s_store_sk
            JOIN item ON ss_item_sk = i_item_sk
            GROUP BY i_item_id, s_store_name, s_zip, d_year)
         SELECT a.i_item_id, a.s_store_name, a.s_zip, a.n, b.n, a.amount, b.amount
         FROM sold a JOIN sold b ON a.i_item_id = b.i_item_id
           AND a.s_store_name = b.s_store_name AND a.s_zip = b.s_zip AND b.n <= a.n
         WHERE a.d_year = 1999 AND b.d_year = 2000",
    ),
    (
        "Q59: a store's week beside the week ten weeks later, on computed keys",
        "WITH weeks AS
           (SELECT d_week_seq AS week, ss_store_sk AS place, sum(ss_sales_price) AS amount
            FROM store_sales JOIN date_dim ON d_date_sk = ss_sold_date_sk
            GROUP BY d_week_seq, ss_store_sk)
         SELECT s_store_name, a.week, a.amount, b.amount FROM weeks a
         JOIN weeks b ON b.place = a.place AND b.week - 10 = a.week
         JOIN store ON s_store_sk = a.place
         WHERE a.week < 20",
    ),
    (
        "Q44 and Q67: ranks within a category, window over joins",
        "SELECT * FROM
           (SELECT i_category, i_class, s_store_id, total,
                   rank() OVER (PARTITION BY i_category ORDER BY total DESC) AS place
            FROM (SELECT i_category, i_class, s_store_id,
                         sum(coalesce(ss_sales_price * ss_quantity, 0)) AS total
                  FROM store_sales
                  JOIN date_dim ON ss_sold_date_sk = d_date_sk
                  JOIN store ON ss_store_sk = s_store_sk
                  JOIN item ON ss_item_sk = i_item_sk
                  GROUP BY i_category, i_class, s_store_id))
         WHERE place <= 5",
    ),
    (
        "Q88 and Q96: sales in half hours, for stores of one name",
        "SELECT t_hour, t_minute / 30, count(*)
         FROM store_sales
         JOIN household_demographics ON ss_hdemo_sk = hd_demo_sk
         JOIN time_dim ON ss_sold_time_sk = t_time_sk
         JOIN store ON ss_store_sk = s_store_sk
         WHERE s_store_name = 'ese' AND hd_dep_count <= hd_vehicle_count + 2
         GROUP BY t_hour, t_minute / 30",
    ),
    (
        "Q49: RIGHT OUTER JOIN of sales and returns with a residual condition",
        "SELECT sr_ticket_number, sr_item_sk, ss_quantity, sr_return_quantity, d_date, i_item_id
         FROM store_sales
         JOIN item ON ss_item_sk = i_item_sk
         RIGHT JOIN store_returns ON ss_ticket_number = sr_ticket_number
           AND ss_item_sk = sr_item_sk AND ss_quantity > sr_return_quantity
         LEFT JOIN date_dim ON d_date_sk = sr_returned_date_sk AND d_year = 1999",
    ),
    (
        "Q75: NULL keys that match each other",
        "SELECT a.i_category, a.i_class, count(*), min(a.total), max(b.total)
         FROM (SELECT i_category, i_class, d_qoy, sum(ss_quantity) AS total FROM store_sales
               JOIN item ON ss_item_sk = i_item_sk
               JOIN date_dim ON d_date_sk = ss_sold_date_sk
               GROUP BY i_category, i_class, d_qoy) a
         JOIN (SELECT i_category, i_class, sum(ws_quantity) AS total FROM web_sales
               JOIN item ON ws_item_sk = i_item_sk GROUP BY i_category, i_class) b
           ON (a.i_category IS NOT DISTINCT FROM b.i_category)
           AND (a.i_class IS NOT DISTINCT FROM b.i_class)
         GROUP BY a.i_category, a.i_class",
    ),
    (
        "Customers like each other: a self join on strings, a month and a NULL-safe key",
        "SELECT a.c_customer_id, b.c_customer_id, a.c_last_name, ca_city
         FROM customer a
         JOIN customer b ON a.c_last_name = b.c_last_name AND a.c_birth_month = b.c_birth_month
           AND a.c_customer_sk < b.c_customer_sk
         JOIN customer_address ON ca_address_sk = a.c_current_addr_sk
         LEFT JOIN date_dim ON d_date_sk IS NOT DISTINCT FROM b.c_first_sales_date_sk
         WHERE d_year = 1999 OR d_year IS NULL",
    ),
    (
        "Cities with stores, warehouses and customers: FULL OUTER JOINs on strings",
        "SELECT coalesce(s_city, w_city, ca_city) AS city, count(s_store_sk),
                count(w_warehouse_sk), count(ca_address_sk), count(c_customer_sk)
         FROM store
         FULL OUTER JOIN warehouse ON s_city = w_city AND s_state = w_state
         FULL OUTER JOIN customer_address ON ca_city = coalesce(s_city, w_city)
           AND ca_state = coalesce(s_state, w_state)
         LEFT JOIN customer ON c_current_addr_sk = ca_address_sk AND c_birth_month < 7
         GROUP BY coalesce(s_city, w_city, ca_city)",
    ),
    (
        "Q58: items on the same days in three channels, with dates and decimals as keys",
        "SELECT i_item_id, s.d_date, s.price, w.quantity
         FROM (SELECT ss_item_sk AS i, d_date, max(ss_ext_sales_price) AS price
               FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
               GROUP BY ss_item_sk, d_date) s
         JOIN (SELECT ws_item_sk AS i, d_date, sum(ws_quantity) AS quantity
               FROM web_sales JOIN date_dim ON ws_sold_date_sk = d_date_sk
               GROUP BY ws_item_sk, d_date) w ON s.i = w.i AND s.d_date = w.d_date
         JOIN item ON i_item_sk = s.i
         JOIN (SELECT DISTINCT ca_gmt_offset FROM customer_address) g
           ON g.ca_gmt_offset = 5 + s.i % 2",
    ),
];

// ---------------------------------------------------------------- comparison

/// A session with device joins whose sides are read by turns of `turn_rows` rows. Where partitions
/// are kept, the thresholds below which DataFusion would collect the build side are lowered, so that
/// there are partitions to keep.
async fn device_session(keep_partitions: bool, turn_rows: usize) -> SessionContext {
    let mut config = SessionConfig::new();
    config.options_mut().extensions.insert(HortonConfig {
        turn_rows,
        ..HortonConfig::default()
    });
    if keep_partitions {
        config = config
            .with_target_partitions(3)
            .set_usize(
                "datafusion.optimizer.hash_join_single_partition_threshold",
                0,
            )
            .set_usize(
                "datafusion.optimizer.hash_join_single_partition_threshold_rows",
                0,
            );
    }
    let session = horton_join::context(config);
    let device = std::env::var("HORTON_TEST_DEVICE").unwrap_or_else(|_| "auto".to_owned());
    for (option, value) in [
        ("enabled", "always"),
        ("device", &device),
        (
            "keep_partitions",
            if keep_partitions { "true" } else { "false" },
        ),
    ] {
        let set = format!("SET horton.{option} = '{value}'");
        session.sql(&set).await.unwrap();
    }
    session
}

/// Device joins of a plan, those of them that kept partitions, those that built the right side, joins
/// elsewhere, kernels that were launched.
#[derive(Debug, Default, Clone, Copy)]
struct Joins {
    device: usize,
    partitioned: usize,
    swapped: usize,
    stock: usize,
    launches: usize,
}

impl Joins {
    fn add(&mut self, other: Self) {
        self.device += other.device;
        self.partitioned += other.partitioned;
        self.swapped += other.swapped;
        self.stock += other.stock;
        self.launches += other.launches;
    }
}

fn joins(plan: &Arc<dyn ExecutionPlan>) -> Joins {
    let mut joins = Joins::default();
    plan.apply(|node| {
        if let Some(join) = node.downcast_ref::<HortonJoinExec>() {
            joins.device += usize::from(join.device_name().is_some());
            joins.stock += usize::from(join.device_name().is_none());
            let mode = join.stock().partition_mode();
            joins.partitioned += usize::from(*mode == PartitionMode::Partitioned);
            let is_swapped = |decision: &Decision| decision.build == Side::Right;
            joins.swapped += usize::from(join.decisions().iter().any(is_swapped));
            let launches = node
                .metrics()
                .and_then(|m| m.sum_by_name("kernel_launches"));
            joins.launches += launches.map_or(0, |launches| launches.as_usize());
        } else if node.name() == "HashJoinExec" {
            joins.stock += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    joins
}

/// Rows as text, sorted.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::new().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
            .collect();
        lines.extend((0..batch.num_rows()).map(|row| {
            let values = columns.iter().map(|column| column.value(row).to_string());
            values.collect::<Vec<_>>().join(" | ")
        }));
    }
    lines.sort_unstable();
    lines
}

async fn run(
    session: &SessionContext,
    query: &str,
) -> datafusion::error::Result<(Vec<String>, Joins)> {
    let plan = session.sql(query).await?.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), session.task_ctx()).await?;
    Ok((lines(&batches), joins(&plan)))
}

/// Where two sorted results first differ.
fn difference(expected: &[String], actual: &[String]) -> String {
    let at = (expected.iter().zip(actual))
        .position(|(expected, actual)| expected != actual)
        .unwrap_or(expected.len().min(actual.len()));
    format!(
        "{} rows for {}; row {at} is {:?} for {:?}",
        actual.len(),
        expected.len(),
        actual.get(at),
        expected.get(at)
    )
}

/// Runs `query` with device joins.
///
/// # Errors
/// What is wrong with the result or the plan.
async fn check(
    session: &SessionContext,
    query: &str,
    expected: &[String],
) -> Result<Joins, String> {
    let (actual, joins) = run(session, query).await.map_err(|e| e.to_string())?;
    if actual != expected {
        return Err(difference(expected, &actual));
    }
    if joins.stock > 0 || !(3..=9).contains(&joins.device) || joins.launches == 0 {
        return Err(format!("{joins:?}"));
    }
    Ok(joins)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_join_queries_return_the_rows_of_the_stock_joins() {
    let stock = SessionContext::new();
    let sessions = [
        stock,
        device_session(false, HortonConfig::default().turn_rows).await,
        device_session(false, 50).await,
        device_session(true, 50).await,
    ];
    register_all(&sessions);
    let [stock, planned, raced, kept] = sessions;
    let (mut all, mut failures) = ([Joins::default(); 3], Vec::new());
    for (name, query) in QUERIES {
        let (expected, _) = run(&stock, query)
            .await
            .unwrap_or_else(|e| panic!("{name}, stock joins: {e}"));
        assert!(!expected.is_empty(), "{name}: no rows");
        for (session, all) in [&planned, &raced, &kept].into_iter().zip(&mut all) {
            match check(session, query, &expected).await {
                Ok(joins) => all.add(joins),
                Err(what) => failures.push(format!("{name}: {what}\n{query}")),
            }
        }
    }
    let [planned, raced, kept] = all;
    println!(
        "star schema: {} queries, {} joins on the device with one table each, \
         {} by turns ({} built the right side), {} with partitions kept ({} have several)",
        QUERIES.len(),
        planned.device,
        raced.device,
        raced.swapped,
        kept.device,
        kept.partitioned
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(QUERIES.len() >= 32);
    for joins in [planned, raced, kept] {
        assert!(joins.device >= 100, "{joins:?}");
    }
    assert!(raced.swapped >= 20, "{raced:?}");
    assert_eq!(kept.swapped, 0, "{kept:?}");
    assert!(
        kept.partitioned > planned.partitioned,
        "{planned:?} {kept:?}"
    );
}
