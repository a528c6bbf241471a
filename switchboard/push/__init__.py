"""Push ingestion: what a webhook delivery is, how it proves itself, what can be read of it (SPEC-0002). Pure; no I/O."""
