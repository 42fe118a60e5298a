-- db-benchmark, join q3: medium outer on int
select count(*) as n, count(v2) as matches, sum(v1) as v1, sum(v2) as v2
from x left join medium on x.id2 = medium.id2
