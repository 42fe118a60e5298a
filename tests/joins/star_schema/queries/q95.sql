-- Q95: orders from two warehouses of which something came back
WITH two AS
  (SELECT a.ws_order_number AS number FROM web_sales a
   JOIN web_sales b ON a.ws_order_number = b.ws_order_number
     AND a.ws_warehouse_sk <> b.ws_warehouse_sk)
SELECT count(DISTINCT ws_order_number), sum(ws_ext_sales_price), sum(ws_net_profit)
FROM web_sales
JOIN date_dim ON ws_sold_date_sk = d_date_sk
JOIN customer_address ON ws_ship_addr_sk = ca_address_sk
WHERE ca_state = 'TX' AND ws_order_number IN (SELECT number FROM two)
  AND ws_order_number IN
    (SELECT sr_ticket_number FROM store_returns
     JOIN two ON sr_ticket_number = number)
