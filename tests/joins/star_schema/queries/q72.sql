-- Q72: too little in the warehouse in the week of the order, nine joins
SELECT i_item_id, w_warehouse_name, d1.d_week_seq, count(p_promo_sk), count(*)
FROM catalog_sales
JOIN inventory ON cs_item_sk = inv_item_sk
JOIN warehouse ON w_warehouse_sk = inv_warehouse_sk
JOIN item ON i_item_sk = cs_item_sk
JOIN customer_demographics ON cs_bill_cdemo_sk = cd_demo_sk
JOIN household_demographics ON cs_bill_hdemo_sk = hd_demo_sk
JOIN date_dim d1 ON cs_sold_date_sk = d1.d_date_sk
JOIN date_dim d2 ON inv_date_sk = d2.d_date_sk AND d1.d_week_seq = d2.d_week_seq
JOIN date_dim d3 ON cs_ship_date_sk = d3.d_date_sk AND d3.d_date > d1.d_date
LEFT JOIN promotion ON cs_promo_sk = p_promo_sk AND p_channel_email = 'Y'
WHERE inv_quantity_on_hand < 5 * cs_quantity
GROUP BY i_item_id, w_warehouse_name, d1.d_week_seq
