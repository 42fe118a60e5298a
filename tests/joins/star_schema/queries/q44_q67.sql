-- Q44 and Q67: ranks within a category, window over joins
SELECT * FROM
  (SELECT i_category, i_class, s_store_id, total,
          rank() OVER (PARTITION BY i_category ORDER BY total DESC) AS place
   FROM (SELECT i_category, i_class, s_store_id,
                sum(coalesce(ss_sales_price * ss_quantity, 0)) AS total
         FROM store_sales
         JOIN date_dim ON ss_sold_date_sk = d_date_sk
         JOIN store ON ss_store_sk = s_store_sk
         JOIN item ON ss_item_sk = i_item_sk
         GROUP BY i_category, i_class, s_store_id))
WHERE place <= 5
