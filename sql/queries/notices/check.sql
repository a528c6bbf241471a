-- A sign of life.
select 1
