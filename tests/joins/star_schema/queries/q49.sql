-- Q49: RIGHT OUTER JOIN of sales and returns with a residual condition
SELECT sr_ticket_number, sr_item_sk, ss_quantity, sr_return_quantity, d_date, i_item_id
FROM store_sales
JOIN item ON ss_item_sk = i_item_sk
RIGHT JOIN store_returns ON ss_ticket_number = sr_ticket_number
  AND ss_item_sk = sr_item_sk AND ss_quantity > sr_return_quantity
LEFT JOIN date_dim ON d_date_sk = sr_returned_date_sk AND d_year = 1999
