-- Q7: averages of what one group of customers bought, promoted or not
SELECT i_item_id, sum(ss_quantity), avg(ss_sales_price), avg(ss_net_profit)
FROM store_sales
JOIN customer_demographics ON ss_cdemo_sk = cd_demo_sk
JOIN date_dim ON ss_sold_date_sk = d_date_sk
JOIN item ON ss_item_sk = i_item_sk
JOIN promotion ON ss_promo_sk = p_promo_sk
WHERE cd_gender = 'M' AND cd_marital_status = 'M' AND d_year = 1999
  AND (p_channel_email = 'N' OR p_channel_event = 'N')
GROUP BY i_item_id
