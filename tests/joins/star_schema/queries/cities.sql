-- Cities with stores, warehouses and customers: FULL OUTER JOINs on strings
SELECT coalesce(s_city, w_city, ca_city) AS city, count(s_store_sk),
       count(w_warehouse_sk), count(ca_address_sk), count(c_customer_sk)
FROM store
FULL OUTER JOIN warehouse ON s_city = w_city AND s_state = w_state
FULL OUTER JOIN customer_address ON ca_city = coalesce(s_city, w_city)
  AND ca_state = coalesce(s_state, w_state)
LEFT JOIN customer ON c_current_addr_sk = ca_address_sk AND c_birth_month < 7
GROUP BY coalesce(s_city, w_city, ca_city)
