"""The tests, by cost: store, actors, http, house; and the benches."""
