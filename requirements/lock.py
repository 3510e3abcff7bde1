"""Write the versions that are installed in this environment to the lock files beside this script.

`cpu.lock` holds what a user needs: the dependencies of the package and its extra `all`, with everything they need in
turn. `dev.lock` holds what the extra `dev` adds. Packages that happen to be installed and are not needed stay out.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parent
BUILD_TOOLS = ("setuptools", "wheel")  # for the editable installation without build isolation
HEADER = "# Written by `make lock`. One set of versions that is tested together.\n"


def find_needed(package: str, extras: tuple[str, ...]) -> set[str]:
    """Return the names of everything that a package with some extras needs here, itself left out."""
    needed: set[str] = set()
    open_requirements = [(package, extra) for extra in ("", *extras)]
    seen = set(open_requirements)
    while open_requirements:
        name, extra = open_requirements.pop()
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:  # for another system or Python, or optional and absent
            continue
        needed.add(canonicalize_name(name))
        for requirement in map(Requirement, requirements):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                for wanted in ("", *requirement.extras):
                    entry = (canonicalize_name(requirement.name), wanted)
                    if entry not in seen:
                        seen.add(entry)
                        open_requirements.append(entry)
    return needed - {canonicalize_name(package)}


def write_lock(file: Path, names: set[str]) -> None:
    """Write one `name==version` line per package. Local version parts such as `+cpu` are left out."""
    lines = [f"{name}=={distribution(name).version.partition('+')[0]}\n" for name in sorted(names)]
    file.write_text(HEADER + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    base = find_needed("tunesmith", ("all",)) | set(BUILD_TOOLS)
    write_lock(FOLDER / "cpu.lock", base)
    write_lock(FOLDER / "dev.lock", find_needed("tunesmith", ("dev",)) - base)
