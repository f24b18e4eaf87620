"""Recipes: from TOML and flags to checked settings, and from names to objects. Nothing else does that."""
