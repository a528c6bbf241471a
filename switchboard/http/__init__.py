"""HTTP without a server: request types, handlers and replies, and one thin shell that binds them to Quart."""
