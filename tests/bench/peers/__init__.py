"""Other queues on Postgres, side by side (P12): a script each, in a virtual environment with only its own packages."""
