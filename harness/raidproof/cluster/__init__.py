"""Many machines: workers of a Dask cluster check crash states and measure plans."""
