-- db-benchmark, join q1: small inner on int
select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join small on x.id1 = small.id1
