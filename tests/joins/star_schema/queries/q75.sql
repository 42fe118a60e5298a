-- Q75: NULL keys that match each other
SELECT a.i_category, a.i_class, count(*), min(a.total), max(b.total)
FROM (SELECT i_category, i_class, d_qoy, sum(ss_quantity) AS total FROM store_sales
      JOIN item ON ss_item_sk = i_item_sk
      JOIN date_dim ON d_date_sk = ss_sold_date_sk
      GROUP BY i_category, i_class, d_qoy) a
JOIN (SELECT i_category, i_class, sum(ws_quantity) AS total FROM web_sales
      JOIN item ON ws_item_sk = i_item_sk GROUP BY i_category, i_class) b
  ON (a.i_category IS NOT DISTINCT FROM b.i_category)
  AND (a.i_class IS NOT DISTINCT FROM b.i_class)
GROUP BY a.i_category, a.i_class
