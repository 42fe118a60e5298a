-- Q29: the same customer's quantities by store, return and web
SELECT i_item_id, c_last_name, sum(ss_quantity), sum(sr_return_quantity),
       sum(ws_quantity)
FROM store_returns
LEFT JOIN store_sales ON ss_ticket_number = sr_ticket_number
  AND ss_item_sk = sr_item_sk AND sr_return_quantity <= ss_quantity
JOIN web_sales ON ws_bill_customer_sk = sr_customer_sk AND ws_item_sk > sr_item_sk
JOIN customer ON c_customer_sk = sr_customer_sk
JOIN item ON i_item_sk = ws_item_sk
WHERE i_category = 'Books'
GROUP BY i_item_id, c_last_name
