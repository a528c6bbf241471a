"""What the house is held against over HTTP: a bare Quart on Trio, and a service written by hand on FastAPI."""
