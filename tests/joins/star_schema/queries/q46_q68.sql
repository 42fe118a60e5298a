-- Q46 and Q68: tickets paid in one city by people who live in another
SELECT c_last_name, bought, here.ca_city, ticket, amount FROM
  (SELECT ss_ticket_number AS ticket, ss_customer_sk AS buyer, ca_city AS bought,
          sum(ss_ext_sales_price) AS amount
   FROM store_sales
   JOIN store ON ss_store_sk = s_store_sk
   JOIN household_demographics ON ss_hdemo_sk = hd_demo_sk
   JOIN customer_address ON ss_addr_sk = ca_address_sk
   WHERE hd_dep_count = 4 OR hd_vehicle_count = 3
   GROUP BY ss_ticket_number, ss_customer_sk, ca_city)
JOIN customer ON buyer = c_customer_sk
JOIN customer_address here ON c_current_addr_sk = here.ca_address_sk
  AND here.ca_city <> bought
