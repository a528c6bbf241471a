"""The tests, by cost: push, store, actors, http, house, redis; and the benches."""
