-- Q99: days to ship by warehouse and carrier
SELECT substr(w_warehouse_name, 1, 20), sm_type, sm_carrier,
       sum(CASE WHEN cs_ship_date_sk - cs_sold_date_sk <= 30 THEN 1 ELSE 0 END),
       sum(CASE WHEN cs_ship_date_sk - cs_sold_date_sk > 90 THEN 1 ELSE 0 END)
FROM catalog_sales
JOIN warehouse ON cs_warehouse_sk = w_warehouse_sk
JOIN ship_mode ON cs_ship_mode_sk = sm_ship_mode_sk
JOIN date_dim ON cs_ship_date_sk = d_date_sk
GROUP BY w_warehouse_name, sm_type, sm_carrier
