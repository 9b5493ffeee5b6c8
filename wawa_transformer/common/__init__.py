"""What every room uses: limits, seeds, special ids, settings, files."""
