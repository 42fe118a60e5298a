-- Q43: stores by day of the week
SELECT s_store_name, s_store_id,
       sum(CASE WHEN d_day_name = 'Sunday' THEN ss_sales_price END),
       sum(CASE WHEN d_day_name = 'Friday' THEN ss_sales_price END)
FROM store
JOIN store_sales ON s_store_sk = ss_store_sk
JOIN date_dim ON d_date_sk = ss_sold_date_sk
JOIN customer_address ON ca_address_sk = ss_addr_sk AND ca_gmt_offset = s_gmt_offset
GROUP BY s_store_name, s_store_id
