"""Where the agents, skills and scenarios that come with rnixfs lie.

A wheel holds them below the package; a checkout (an editable install too) has `agents/` and `skills/` at its
top, where people look for them.
"""

import pathlib
from typing import Literal

Kind = Literal["agents", "skills", "scenarios"]

PACKAGE = pathlib.Path(__file__).resolve().parent


def folder(kind: Kind, package: pathlib.Path = PACKAGE) -> pathlib.Path:
    """The folder of one kind of shipped file.

    Args:
        kind: which of them.
        package: the folder of the package `rnixfs`, if it is not this one.

    Raises:
        FileNotFoundError: the installation lacks that folder.
    """
    # The wheel's place comes first: beside an installed package, `agents` may be somebody else's.
    places = [package / "_data" / kind, package / kind, package.parent / kind]
    for place in places:
        if place.is_dir():
            return place
    looked = ", ".join(str(place) for place in places)
    raise FileNotFoundError(f"rnixfs was installed without its {kind}: looked for {looked}")
