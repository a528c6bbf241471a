"""What the house is made of: the todo and its errors, configuration, database border, store, HTTP, supervisor."""

VERSION = "0.1.0"
