-- Q45: sales to some zip codes or of some items
SELECT ca_zip, ca_city, sum(ws_ext_sales_price)
FROM web_sales
JOIN customer ON ws_bill_customer_sk = c_customer_sk
JOIN customer_address ON c_current_addr_sk = ca_address_sk
JOIN item ON ws_item_sk = i_item_sk
WHERE substr(ca_zip, 1, 5) IN ('35001', '35017', '35042')
  OR i_item_id IN (SELECT i_item_id FROM item WHERE i_item_sk IN (2, 3, 5, 7, 11, 13))
GROUP BY ca_zip, ca_city
