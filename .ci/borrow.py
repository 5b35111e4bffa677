"""Lend an environment what a package declares, and nothing else, without a second download.

``python .ci/borrow.py ENVIRONMENT PACKAGE``: the distributions that PACKAGE, installed there, asks
for, and those they ask for, are linked into it from the environment that runs this. Whatever the
package uses but does not declare is missing there, as it would be after a plain install.
"""

import sys
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def wanted(found: Distribution, extras: frozenset[str]) -> list[Requirement]:
    """What a distribution with these extras asks for on this machine."""
    asked = [Requirement(line) for line in found.requires or ()]
    markers = [{"extra": extra} for extra in extras or {""}]
    return [r for r in asked if not r.marker or any(r.marker.evaluate(m) for m in markers)]


def lent(found: Distribution, place: Path) -> None:
    """Links to all that a distribution brought, but for its scripts."""
    for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        if not (place / name).exists():
            (place / name).symlink_to(Path(str(found.locate_file(name))).resolve())


def main(environment: str, package: str) -> None:
    place = next(Path(environment).glob("lib/python*/site-packages"))
    own = next(distributions(name=package, path=[str(place)]))
    waiting, done = wanted(own, frozenset()), set()
    while waiting:
        asked = waiting.pop()
        key = canonicalize_name(asked.name), frozenset(asked.extras)
        if key not in done:
            done.add(key)
            found = distribution(asked.name)
            lent(found, place)
            waiting += wanted(found, key[1])
    print("lent:", ", ".join(sorted({name for name, _ in done})))


if __name__ == "__main__":
    main(*sys.argv[1:])
