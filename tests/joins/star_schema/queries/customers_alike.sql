-- Customers like each other: a self join on strings, a month and a NULL-safe key
SELECT a.c_customer_id, b.c_customer_id, a.c_last_name, ca_city
FROM customer a
JOIN customer b ON a.c_last_name = b.c_last_name AND a.c_birth_month = b.c_birth_month
  AND a.c_customer_sk < b.c_customer_sk
JOIN customer_address ON ca_address_sk = a.c_current_addr_sk
LEFT JOIN date_dim ON d_date_sk IS NOT DISTINCT FROM b.c_first_sales_date_sk
WHERE d_year = 1999 OR d_year IS NULL
