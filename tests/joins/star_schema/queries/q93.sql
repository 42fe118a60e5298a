-- Q93: what customers kept of what they bought
SELECT ss_customer_sk, s_store_name,
       sum(CASE WHEN sr_return_quantity IS NOT NULL
           THEN (ss_quantity - sr_return_quantity) * ss_sales_price
           ELSE ss_quantity * ss_sales_price END)
FROM store_sales
LEFT JOIN store_returns ON sr_item_sk = ss_item_sk
  AND sr_ticket_number = ss_ticket_number AND sr_return_quantity < ss_quantity
LEFT JOIN customer ON ss_customer_sk = c_customer_sk
LEFT JOIN store ON s_store_sk = ss_store_sk
GROUP BY ss_customer_sk, s_store_name
