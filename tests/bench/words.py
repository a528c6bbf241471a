"""What every todo of a bench holds, here and at the rivals."""

from __future__ import annotations

QUEUE = "work"
PAYLOAD = '{"order": 1, "items": [{"sku": "A-1", "count": 3}], "note": "a hundred bytes or so of work to be done"}'
