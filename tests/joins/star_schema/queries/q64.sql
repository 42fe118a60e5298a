-- Q64: the same item in the same store in two years, a CTE used twice
WITH sold AS
  (SELECT i_item_id, s_store_name, s_zip, d_year, count(*) AS n,
          sum(ss_sales_price) AS amount
   FROM store_sales
   JOIN date_dim ON ss_sold_date_sk = d_date_sk
   JOIN store ON ss_store_sk = s_store_sk
   JOIN item ON ss_item_sk = i_item_sk
   GROUP BY i_item_id, s_store_name, s_zip, d_year)
SELECT a.i_item_id, a.s_store_name, a.s_zip, a.n, b.n, a.amount, b.amount
FROM sold a JOIN sold b ON a.i_item_id = b.i_item_id
  AND a.s_store_name = b.s_store_name AND a.s_zip = b.s_zip AND b.n <= a.n
WHERE a.d_year = 1999 AND b.d_year = 2000
