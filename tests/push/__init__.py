"""Webhook deliveries: who may make them, what is read of them, what is kept of their headers. No database, no HTTP."""
