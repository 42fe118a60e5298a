-- Q59: a store's week beside the week ten weeks later, on computed keys
WITH weeks AS
  (SELECT d_week_seq AS week, ss_store_sk AS place, sum(ss_sales_price) AS amount
   FROM store_sales JOIN date_dim ON d_date_sk = ss_sold_date_sk
   GROUP BY d_week_seq, ss_store_sk)
SELECT s_store_name, a.week, a.amount, b.amount FROM weeks a
JOIN weeks b ON b.place = a.place AND b.week - 10 = a.week
JOIN store ON s_store_sk = a.place
WHERE a.week < 20
