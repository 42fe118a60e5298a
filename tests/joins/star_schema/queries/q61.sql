-- Q61: promoted and all revenue, two scalar subqueries
SELECT promoted, total, promoted < total FROM
  (SELECT
    (SELECT sum(ss_ext_sales_price) FROM store_sales
     JOIN promotion ON ss_promo_sk = p_promo_sk
     JOIN item ON ss_item_sk = i_item_sk
     WHERE i_category = 'Music' AND p_channel_event = 'Y') AS promoted,
    (SELECT sum(ss_ext_sales_price) FROM store_sales
     JOIN item ON ss_item_sk = i_item_sk
     WHERE i_category = 'Music') AS total)
