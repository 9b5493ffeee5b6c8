"""The laboratory: many runs, what they say, and the page that shows it."""
