"""From a failure that many states show to the smallest one that does."""
