-- Q42 and Q52: categories of a month, with the hour
SELECT d_year, i_category, t_hour, sum(ss_ext_sales_price)
FROM date_dim
JOIN store_sales ON d_date_sk = ss_sold_date_sk
JOIN item ON ss_item_sk = i_item_sk
JOIN time_dim ON t_time_sk = ss_sold_time_sk
WHERE d_moy = 2 AND i_manager_id < 25
GROUP BY d_year, i_category, t_hour
