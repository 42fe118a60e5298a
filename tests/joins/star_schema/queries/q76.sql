-- Q76: sales with a missing key, by channel
SELECT channel, missing, d_year, i_category, count(*), sum(price) FROM
  (SELECT 'store' AS channel, 'customer' AS missing, d_year, i_category,
          ss_ext_sales_price AS price
   FROM store_sales JOIN item ON ss_item_sk = i_item_sk
   JOIN date_dim ON ss_sold_date_sk = d_date_sk WHERE ss_customer_sk IS NULL
   UNION ALL
   SELECT 'web', 'address', d_year, i_category, ws_ext_sales_price
   FROM web_sales JOIN item ON ws_item_sk = i_item_sk
   JOIN date_dim ON ws_sold_date_sk = d_date_sk WHERE ws_ship_addr_sk IS NULL)
GROUP BY channel, missing, d_year, i_category
