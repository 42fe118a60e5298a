-- Q6: states whose customers buy above a category's average price
SELECT ca_state, count(*) FROM customer_address
JOIN customer ON ca_address_sk = c_current_addr_sk
JOIN store_sales ON c_customer_sk = ss_customer_sk
JOIN item i ON ss_item_sk = i_item_sk
WHERE i_current_price > (SELECT 1.2 * avg(j.i_current_price) FROM item j
                         WHERE j.i_category = i.i_category)
GROUP BY ca_state HAVING count(*) >= 10
