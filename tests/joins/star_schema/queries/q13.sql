-- Q13: residual filters with alternatives over several dimensions
SELECT sum(ss_quantity), avg(ss_ext_sales_price), count(*)
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
    OR ca_state IN ('OR', 'NM') AND ss_net_profit < 250)
