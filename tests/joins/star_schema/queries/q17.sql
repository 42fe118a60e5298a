-- Q17: bought, brought back, bought again by catalog
SELECT i_item_id, s_state, count(*), sum(ss_quantity), sum(sr_return_quantity),
       sum(cs_quantity)
FROM store_sales
JOIN store_returns ON ss_customer_sk = sr_customer_sk AND ss_item_sk = sr_item_sk
  AND ss_ticket_number = sr_ticket_number
JOIN catalog_sales ON sr_customer_sk = cs_bill_customer_sk
JOIN date_dim d1 ON d1.d_date_sk = ss_sold_date_sk
JOIN date_dim d2 ON d2.d_date_sk = sr_returned_date_sk
JOIN date_dim d3 ON d3.d_date_sk = cs_sold_date_sk
JOIN item ON i_item_sk = ss_item_sk
JOIN store ON s_store_sk = ss_store_sk
WHERE d1.d_qoy = 1 AND d2.d_qoy IN (1, 2) AND d3.d_qoy = 2
GROUP BY i_item_id, s_state
