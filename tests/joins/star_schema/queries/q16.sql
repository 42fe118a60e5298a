-- Q16: NOT IN without NULLs, and one with NULLs that lets nothing through
SELECT w_state, count(*), sum(cs_net_profit)
FROM catalog_sales
JOIN warehouse ON cs_warehouse_sk = w_warehouse_sk
JOIN date_dim ON cs_ship_date_sk = d_date_sk
WHERE cs_order_number NOT IN
    (SELECT sr_ticket_number FROM store_returns WHERE sr_return_quantity > 25)
GROUP BY w_state
UNION ALL
SELECT 'none', count(*), sum(cs_net_profit) FROM catalog_sales
WHERE cs_item_sk NOT IN (SELECT inv_item_sk FROM inventory)
