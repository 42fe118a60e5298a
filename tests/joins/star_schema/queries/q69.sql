-- Q69: buyers in stores but never on the web
SELECT cd_gender, cd_marital_status, count(*)
FROM customer c
JOIN customer_address ON c_current_addr_sk = ca_address_sk
JOIN customer_demographics ON cd_demo_sk = c_current_cdemo_sk
WHERE EXISTS (SELECT 1 FROM store_sales WHERE ss_customer_sk = c_customer_sk)
  AND NOT EXISTS (SELECT 1 FROM web_sales WHERE ws_bill_customer_sk = c_customer_sk
                  AND ws_net_profit > 120)
GROUP BY cd_gender, cd_marital_status
