-- Q38 and Q87: names and days in one channel and not in the other
SELECT c_last_name, c_first_name, d_date FROM store_sales
JOIN customer ON ss_customer_sk = c_customer_sk
JOIN date_dim ON ss_sold_date_sk = d_date_sk WHERE d_moy = 5
EXCEPT
SELECT c_last_name, c_first_name, d_date FROM catalog_sales
JOIN customer ON cs_bill_customer_sk = c_customer_sk
JOIN date_dim ON cs_sold_date_sk = d_date_sk
