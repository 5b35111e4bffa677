"""Files, datasets, protocols, samplers: whatever touches a disk or an order of examples."""
