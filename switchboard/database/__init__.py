"""The one place that knows Postgres: connections and transactions, migrations, and the embedded server."""
