-- db-benchmark, join q2: medium inner on int
select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id2 = medium.id2
