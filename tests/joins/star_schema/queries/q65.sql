-- Q65: items that sell far below a store's average
WITH revenues AS
  (SELECT ss_store_sk, ss_item_sk, sum(ss_sales_price) AS revenue
   FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
   WHERE d_year = 1999 GROUP BY ss_store_sk, ss_item_sk)
SELECT s_store_name, i_item_id, r.revenue, i_current_price
FROM revenues r
JOIN (SELECT ss_store_sk, avg(revenue) AS average FROM revenues GROUP BY ss_store_sk) a
  ON a.ss_store_sk = r.ss_store_sk AND r.revenue <= 0.3 * a.average
JOIN store ON s_store_sk = r.ss_store_sk
JOIN item ON i_item_sk = r.ss_item_sk
