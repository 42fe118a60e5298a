-- Q85: returns by people like the buyer
SELECT cd1.cd_education_status, count(*), sum(ss_quantity), sum(sr_return_amt)
FROM store_sales
JOIN store_returns ON ss_item_sk = sr_item_sk AND ss_ticket_number = sr_ticket_number
JOIN customer_demographics cd1 ON cd1.cd_demo_sk = ss_cdemo_sk
JOIN customer_demographics cd2 ON cd2.cd_demo_sk = sr_cdemo_sk
  AND cd1.cd_marital_status = cd2.cd_marital_status
  AND cd1.cd_education_status = cd2.cd_education_status
JOIN customer_address ON ca_address_sk = ss_addr_sk
  AND (ca_state = 'TX' AND ss_net_profit > 100 OR ca_state <> 'TX')
GROUP BY cd1.cd_education_status
