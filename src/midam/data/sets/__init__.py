"""The built-in data sets: what they hold, where they lie, how they are fetched and verified."""
