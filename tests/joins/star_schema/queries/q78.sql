-- Q78: sales of the year that were not returned, by store and by web
WITH ss AS (SELECT ss_item_sk AS i, ss_customer_sk AS c, sum(ss_quantity) AS q
            FROM store_sales
            LEFT JOIN store_returns ON sr_ticket_number = ss_ticket_number
              AND sr_item_sk = ss_item_sk
            JOIN date_dim ON ss_sold_date_sk = d_date_sk
            WHERE sr_ticket_number IS NULL AND d_year = 1999
            GROUP BY ss_item_sk, ss_customer_sk),
     ws AS (SELECT ws_item_sk AS i, ws_bill_customer_sk AS c, sum(ws_quantity) AS q
            FROM web_sales JOIN date_dim ON ws_sold_date_sk = d_date_sk
            WHERE d_year = 1999 GROUP BY ws_item_sk, ws_bill_customer_sk)
SELECT ss.c, ss.i, ss.q, coalesce(ws.q, 0) FROM ss
LEFT JOIN ws ON ws.i = ss.i AND ws.c = ss.c
WHERE ss.q > 60
