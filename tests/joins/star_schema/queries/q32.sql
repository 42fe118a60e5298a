-- Q32: discounts above an item's average
SELECT i_manufact_id, sum(cs_ext_discount_amt)
FROM catalog_sales c
JOIN item ON i_item_sk = cs_item_sk
JOIN date_dim ON d_date_sk = cs_sold_date_sk
WHERE cs_ext_discount_amt >
  (SELECT 1.3 * avg(x.cs_ext_discount_amt) FROM catalog_sales x
   JOIN date_dim d ON d.d_date_sk = x.cs_sold_date_sk
   WHERE x.cs_item_sk = c.cs_item_sk AND d.d_moy < 9)
GROUP BY i_manufact_id
