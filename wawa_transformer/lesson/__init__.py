"""The walk-through, the pictures and the pages."""
