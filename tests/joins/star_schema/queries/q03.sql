-- Q3: brands of some manufacturers in November
SELECT d_year, i_brand_id, i_brand, sum(ss_ext_sales_price) AS revenue
FROM store_sales
JOIN date_dim ON ss_sold_date_sk = d_date_sk
JOIN item ON ss_item_sk = i_item_sk
JOIN store ON ss_store_sk = s_store_sk
WHERE d_moy = 11 AND i_manufact_id < 30
GROUP BY d_year, i_brand_id, i_brand
