-- Q25: profit and loss of an item that came back
SELECT i_item_id, s_store_id, sum(ss_net_profit), sum(sr_return_amt),
       min(d2.d_date), max(d2.d_date)
FROM store_sales, store_returns, date_dim d1, date_dim d2, store, item
WHERE d1.d_moy < 7 AND d1.d_date_sk = ss_sold_date_sk AND i_item_sk = ss_item_sk
  AND s_store_sk = ss_store_sk AND ss_customer_sk = sr_customer_sk
  AND ss_item_sk = sr_item_sk AND ss_ticket_number = sr_ticket_number
  AND sr_returned_date_sk = d2.d_date_sk AND d2.d_date > d1.d_date
GROUP BY i_item_id, s_store_id
