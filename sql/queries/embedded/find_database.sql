-- One row where the house's own database is there already: a start may have been killed between making the data and it.
select 1 from pg_database where datname = 'switchboard';
