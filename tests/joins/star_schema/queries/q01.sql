-- Q1: customers who return more than their store's average
WITH returned AS
  (SELECT sr_customer_sk AS who, sr_store_sk AS place, sum(sr_return_amt) AS amount
   FROM store_returns JOIN date_dim ON sr_returned_date_sk = d_date_sk
   WHERE d_year = 1999 GROUP BY sr_customer_sk, sr_store_sk)
SELECT c_customer_id, s_store_id, amount FROM returned r
JOIN store ON s_store_sk = r.place
JOIN customer ON c_customer_sk = r.who
WHERE amount > (SELECT avg(amount) * 2 FROM returned x WHERE x.place = r.place)
