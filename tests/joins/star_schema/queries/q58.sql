-- Q58: items on the same days in three channels, with dates and decimals as keys
SELECT i_item_id, s.d_date, s.price, w.quantity
FROM (SELECT ss_item_sk AS i, d_date, max(ss_ext_sales_price) AS price
      FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
      GROUP BY ss_item_sk, d_date) s
JOIN (SELECT ws_item_sk AS i, d_date, sum(ws_quantity) AS quantity
      FROM web_sales JOIN date_dim ON ws_sold_date_sk = d_date_sk
      GROUP BY ws_item_sk, d_date) w ON s.i = w.i AND s.d_date = w.d_date
JOIN item ON i_item_sk = s.i
JOIN (SELECT DISTINCT ca_gmt_offset FROM customer_address) g
  ON g.ca_gmt_offset = 5 + s.i % 2
