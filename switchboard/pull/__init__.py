"""Pull ingestion: what an adapter for a broker implements (`source`), and the reference, Redis (SPEC-0002)."""
