-- Q97: who buys what in stores, by catalog or both
WITH s AS (SELECT ss_customer_sk AS who, ss_item_sk AS what
           FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk
           WHERE d_year = 1999 GROUP BY ss_customer_sk, ss_item_sk),
     c AS (SELECT cs_bill_customer_sk AS who, cs_item_sk AS what
           FROM catalog_sales JOIN date_dim ON cs_sold_date_sk = d_date_sk
           WHERE d_year = 1999 GROUP BY cs_bill_customer_sk, cs_item_sk)
SELECT sum(CASE WHEN s.who IS NOT NULL AND c.who IS NULL THEN 1 ELSE 0 END),
       sum(CASE WHEN s.who IS NULL AND c.who IS NOT NULL THEN 1 ELSE 0 END),
       sum(CASE WHEN s.who IS NOT NULL AND c.who IS NOT NULL THEN 1 ELSE 0 END), count(*)
FROM s FULL OUTER JOIN c ON s.who = c.who AND s.what = c.what
