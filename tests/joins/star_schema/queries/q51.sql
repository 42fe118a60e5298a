-- Q51: FULL OUTER JOIN of running totals, with a residual condition
WITH w AS (SELECT ws_item_sk AS i, d_date, sum(sum(ws_ext_sales_price))
             OVER (PARTITION BY ws_item_sk ORDER BY d_date) AS total
           FROM web_sales JOIN date_dim ON ws_sold_date_sk = d_date_sk
           WHERE d_moy < 4 GROUP BY ws_item_sk, d_date),
     s AS (SELECT ss_item_sk AS i, d_date, sum(sum(ss_sales_price))
             OVER (PARTITION BY ss_item_sk ORDER BY d_date) AS total
           FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
           WHERE d_moy < 4 GROUP BY ss_item_sk, d_date)
SELECT w.i, s.i, w.d_date, s.d_date, w.total, s.total
FROM w FULL OUTER JOIN s ON w.i = s.i AND w.d_date = s.d_date AND w.total > s.total
