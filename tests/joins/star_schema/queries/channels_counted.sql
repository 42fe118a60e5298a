-- Sales of channels, counted along: a window over what each branch of a UNION ALL has one value of
SELECT channel, min(along), max(along), count(*)
FROM (
  SELECT channel, count(*) OVER (ORDER BY channel) AS along
  FROM (
    SELECT 1 AS channel, ss_customer_sk AS customer, ss_item_sk AS item FROM store_sales
    UNION ALL
    SELECT 2, cs_bill_customer_sk, cs_item_sk FROM catalog_sales
    UNION ALL
    SELECT 3, CAST(ws_bill_customer_sk AS INT), CAST(ws_item_sk AS INT) FROM web_sales
  ) sales
  WHERE EXISTS (SELECT 1 FROM customer JOIN customer_address ON c_current_addr_sk = ca_address_sk
                WHERE c_customer_sk = customer AND c_birth_month < 7)
    AND EXISTS (SELECT 1 FROM item WHERE i_item_sk = item)
)
GROUP BY channel
