"""A run's configuration, folder, device and processes."""
