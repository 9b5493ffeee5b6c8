"""The printed lesson, its pictures and its web pages."""
