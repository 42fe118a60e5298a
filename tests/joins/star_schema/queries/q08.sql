-- Q8: stores whose zip code is a frequent one, joined on strings
SELECT s_store_name, z.zip, sum(ss_net_profit)
FROM store_sales
JOIN date_dim ON ss_sold_date_sk = d_date_sk
JOIN store ON ss_store_sk = s_store_sk
JOIN (SELECT ca_zip AS zip FROM customer_address WHERE ca_zip < '35050'
      INTERSECT
      SELECT ca_zip FROM customer_address JOIN customer
        ON ca_address_sk = c_current_addr_sk
      GROUP BY ca_zip HAVING count(*) > 5) z ON s_zip = z.zip
GROUP BY s_store_name, z.zip
