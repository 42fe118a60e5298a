-- Q94: orders without a return, from two warehouses
SELECT ws_order_number, count(*), sum(ws_net_profit) FROM web_sales w
JOIN date_dim ON ws_sold_date_sk = d_date_sk
JOIN ship_mode ON ws_ship_mode_sk = sm_ship_mode_sk
WHERE EXISTS (SELECT 1 FROM web_sales o WHERE o.ws_order_number = w.ws_order_number
              AND o.ws_warehouse_sk <> w.ws_warehouse_sk)
  AND NOT EXISTS (SELECT 1 FROM store_returns WHERE sr_ticket_number = ws_order_number)
GROUP BY ws_order_number
