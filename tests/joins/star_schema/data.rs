//! The tables: generated from a fixed seed, with keys that are skewed, missing, or point nowhere.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, RecordBatch, StringArray, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use rand_mt::Mt;

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

/// Registers all tables in each of the sessions.
pub fn register_all(sessions: &[SessionContext]) {
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
