"""The lesson: the encoding step by step, in pictures, and on a page to move by hand."""
