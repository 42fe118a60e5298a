-- Q71: brands by time of the meal in all three facts
SELECT i_brand, t_meal_time, sum(price) FROM
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
GROUP BY i_brand, t_meal_time
