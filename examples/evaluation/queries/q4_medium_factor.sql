-- db-benchmark, join q4: medium inner on factor
select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id5 = medium.id5
