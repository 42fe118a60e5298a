-- Q79: tickets of large households and who paid them
SELECT c_last_name, c_first_name, s_city, ticket, amount
FROM (SELECT ss_ticket_number AS ticket, ss_customer_sk AS buyer, s_city,
             sum(ss_net_profit) AS amount
      FROM store_sales, date_dim, store, household_demographics
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk
        AND ss_hdemo_sk = hd_demo_sk AND (hd_dep_count = 6 OR hd_vehicle_count > 2)
        AND s_number_employees BETWEEN 200 AND 295
      GROUP BY ss_ticket_number, ss_customer_sk, s_city)
JOIN customer ON buyer = c_customer_sk
