"""The versions of an installation, as a record."""

from pydantic import BaseModel, ConfigDict, Field

VERSIONS_SCHEMA = 1


class Versions(BaseModel):
    """The versions of an installation."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = VERSIONS_SCHEMA
    raidproof: str
    python: str
    schemas: dict[str, int] = Field(default_factory=dict)
    """Version of each published schema, by its name."""
    plugins: dict[str, str] = Field(default_factory=dict)
    """Version of each installed distribution with entry points of raidproof, by its name."""
