.bail on
set threads = 2;
create table big as select * from 'DATA/db-benchmark-10000000/tables/big.parquet';
create table medium as select * from 'DATA/db-benchmark-10000000/tables/medium.parquet';
create table small as select * from 'DATA/db-benchmark-10000000/tables/small.parquet';
create table x as select * from 'DATA/db-benchmark-10000000/tables/x.parquet';
.timer on
.print query q1_small_inner
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join small on x.id1 = small.id1;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join small on x.id1 = small.id1;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join small on x.id1 = small.id1;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join small on x.id1 = small.id1;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join small on x.id1 = small.id1;
.print query q2_medium_inner
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id2 = medium.id2;
.print query q3_medium_outer
create or replace temp table answer as select count(*) as n, count(v2) as matches, sum(v1) as v1, sum(v2) as v2 from x left join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, count(v2) as matches, sum(v1) as v1, sum(v2) as v2 from x left join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, count(v2) as matches, sum(v1) as v1, sum(v2) as v2 from x left join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, count(v2) as matches, sum(v1) as v1, sum(v2) as v2 from x left join medium on x.id2 = medium.id2;
create or replace temp table answer as select count(*) as n, count(v2) as matches, sum(v1) as v1, sum(v2) as v2 from x left join medium on x.id2 = medium.id2;
.print query q4_medium_factor
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id5 = medium.id5;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id5 = medium.id5;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id5 = medium.id5;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id5 = medium.id5;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join medium on x.id5 = medium.id5;
.print query q5_big_inner
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join big on x.id3 = big.id3;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join big on x.id3 = big.id3;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join big on x.id3 = big.id3;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join big on x.id3 = big.id3;
create or replace temp table answer as select count(*) as n, sum(v1) as v1, sum(v2) as v2 from x join big on x.id3 = big.id3;
