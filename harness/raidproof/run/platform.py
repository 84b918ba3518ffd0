"""The platform of a run (provider and software) from command line options and the plan."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raidproof.core.errors import RequestError, nearest
from raidproof.core.topology import Platform, SoftwareSpec, Topology
from raidproof.crash.checker import require_shown
from raidproof.image import image, kernel
from raidproof.image.kernel import catalogue
from raidproof.plan.plan import RunSpec
from raidproof.provider.registry import AUTO, decide, names
from raidproof.provider.vagrant import box

HOSTS = "hosts"
"""Name of the provider of existing machines."""


def platform_of(asked: Mapping[str, Any], planned: Platform | None = None) -> Platform:
    """Return the platform that the options ``asked`` (by name) request; ``planned`` has the values of missing options.

    Raises:
        RequestError: provider ``hosts`` has no inventory, or another provider has one, or an option is invalid.
        RequirementMissing: with provider ``auto``, no provider can run on this host.
    """
    platform = _requested(asked, planned or Platform())
    if platform.provider == AUTO:
        return platform.model_copy(update={"provider": decide().name})
    return platform


def _requested(asked: Mapping[str, Any], planned: Platform) -> Platform:
    both = SoftwareSpec(
        kernel=asked.get("kernel"),
        modules=asked.get("modules"),
        image=asked.get("image"),
        packages=tuple(asked.get("package") or ()),
    )
    server, clients = (_software(asked.get(name), both, planned_one) for name, planned_one in _roles(planned))
    provider = asked.get("provider") or planned.provider
    # An inventory that is only a default has no effect on other providers.
    inventory = str(asked.get("inventory") or (planned.inventory if provider == HOSTS else None) or "") or None
    if inventory and not asked.get("provider"):
        provider = HOSTS
    if provider == HOSTS and not inventory:
        raise RequestError(
            "provider hosts needs an inventory of its machines", remedy="name the file with --inventory FILE"
        )
    if inventory and provider != HOSTS:
        raise RequestError(f"--inventory is only for provider hosts, not for provider {provider}")
    return Platform(provider=provider, inventory=inventory, server=server, clients=clients)


def platform_for(
    asked: Mapping[str, Any], run: RunSpec | None = None, defaults: Mapping[str, Any] | None = None
) -> Platform:
    """Return the platform from command line options and a plan, and verify that it can run the plan.

    ``defaults``: options of a file of defaults, which apply where neither command line nor plan has a value.

    Raises:
        RequestError: the options are invalid; a provider, kernel or image is unknown; or the plan requests an
            exploration, which the provider does not support.
    """
    platform = platform_of(asked, planned_over(run, defaults or {}))
    refuse_unknown(platform)
    if run is not None and run.cut == "explore":
        require_shown(platform.provider)
    return platform


def planned_over(run: RunSpec | None, defaults: Mapping[str, Any]) -> Platform:
    """Return the platform of a plan, with its missing values from a file's options."""
    names_provider = run is not None and "provider" in run.model_fields_set
    usable = {
        name: value
        for name, value in defaults.items()
        # The options name an inventory for the provider that they name, not for another one.
        if not (names_provider and name in {"provider", "inventory"})
    }
    # An inventory without a provider means provider hosts, also in a file.
    below = _requested(usable, Platform())
    if run is None:
        return below
    asked = run.platform
    return Platform(
        provider=asked.provider if names_provider else below.provider,
        inventory=None if names_provider else below.inventory,
        server=asked.server.over(below.server),
        clients=asked.clients.over(below.clients),
    )


def _roles(planned: Platform) -> tuple[tuple[str, SoftwareSpec], ...]:
    return (("server", planned.server), ("clients", planned.clients))


def _software(words: Sequence[str] | None, both: SoftwareSpec, planned: SoftwareSpec) -> SoftwareSpec:
    return SoftwareSpec.read(words or ()).over(both).over(planned)


def refuse_unknown(platform: Platform) -> None:
    """Verify that a platform's provider, kernels and images exist; nothing is downloaded.

    Raises:
        RequestError: a provider, kernel or image is unknown.
    """
    if platform.provider not in names():
        raise RequestError(f"unknown provider: {platform.provider!r}", remedy=nearest(platform.provider, names()))
    for software in (platform.server, platform.clients):
        box.refuse(software, platform.provider)
        if (name := software.kernel) is not None and not kernel.is_path(name):
            (catalogue.user_mode if platform.provider == kernel.USER_MODE else catalogue.metapackage)(name)
        if (folder := software.image) is None or box.asked(software) or Path(folder).is_dir():
            continue
        if folder not in image.names():
            raise RequestError(f"unknown image {folder!r}; {nearest(folder, image.names())}")


def words_of(topology: Topology) -> list[str]:
    """Return the command line options that request the platform of a topology."""
    words = [f"--provider={topology.provider}"]
    words += [f"--inventory={topology.inventory}"] if topology.inventory else []
    for role, machine in (("server", topology.server), ("clients", topology.clients[0])):
        asked = machine.software
        pairs = {"kernel": asked.kernel, "modules": asked.modules, "image": asked.image}
        words += [f"--{role}={key}={value}" for key, value in pairs.items() if value is not None]
        words += [f"--{role}=package={path}" for path in asked.packages]
    return words
