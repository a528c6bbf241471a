-- Which of these adapters may consume. One query a second reads all of them (R21).
select a.name, a.enabled from adapters a where a.name = any (%(names)s::text[])
