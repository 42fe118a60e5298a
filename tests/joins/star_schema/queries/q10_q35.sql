-- Q10 and Q35: demographics of those who buy in two ways, mark joins
SELECT cd_gender, cd_education_status, count(*)
FROM customer c
JOIN customer_demographics ON cd_demo_sk = c_current_cdemo_sk
WHERE EXISTS (SELECT 1 FROM store_sales WHERE ss_customer_sk = c.c_customer_sk
              AND ss_quantity > 50)
  AND (EXISTS (SELECT 1 FROM web_sales WHERE ws_bill_customer_sk = c.c_customer_sk)
    OR EXISTS (SELECT 1 FROM catalog_sales WHERE cs_bill_customer_sk = c.c_customer_sk))
GROUP BY cd_gender, cd_education_status
