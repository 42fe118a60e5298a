-- Q88 and Q96: sales in half hours, for stores of one name
SELECT t_hour, t_minute / 30, count(*)
FROM store_sales
JOIN household_demographics ON ss_hdemo_sk = hd_demo_sk
JOIN time_dim ON ss_sold_time_sk = t_time_sk
JOIN store ON ss_store_sk = s_store_sk
WHERE s_store_name = 'ese' AND hd_dep_count <= hd_vehicle_count + 2
GROUP BY t_hour, t_minute / 30
