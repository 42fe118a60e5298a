-- db-benchmark, join q5: big inner on int
select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join big on x.id3 = big.id3
