"""CUB-200-2011 (C. Wah et al., 2011): 11,788 photographs of 200 kinds of birds.

``CUB_200_2011/images/001.Black_footed_Albatross/*.jpg`` and so on. Families are categories: the
last word of a kind's name says which, except where two families share that word.
"""

from __future__ import annotations

from pathlib import Path

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.folders import list_images
from rankbits.papers.publishers import published

NAME = "CUB-200-2011"
CLASSES, TRAINED = 200, 100
FAMILIES = {
    "Alaudidae": "Lark",
    "Alcedinidae": "Kingfisher",
    "Alcidae": "Auklet Guillemot Puffin",
    "Anatidae": "Gadwall Mallard Merganser",
    "Bombycillidae": "Waxwing",
    "Caprimulgidae": "Widow Nighthawk Will",
    "Cardinalidae": "Bunting Cardinal Tanager Blue_Grosbeak Rose_breasted_Grosbeak",
    "Certhiidae": "Creeper",
    "Corvidae": "Crow Jay Nutcracker Raven",
    "Cuculidae": "Ani Cuckoo Geococcyx",
    "Diomedeidae": "Albatross",
    "Fregatidae": "Frigatebird",
    "Fringillidae": "Finch Goldfinch Evening_Grosbeak Pine_Grosbeak",
    "Gaviidae": "Loon",
    "Hirundinidae": "Swallow",
    "Icteridae": "Blackbird Bobolink Cowbird Grackle Meadowlark Oriole",
    "Icteriidae": "Chat",
    "Laniidae": "Shrike",
    "Laridae": "Gull Kittiwake Tern",
    "Mimidae": "Gray_Catbird Mockingbird Thrasher",
    "Motacillidae": "Pipit",
    "Parulidae": "Ovenbird Redstart Warbler Waterthrush Yellowthroat",
    "Passerellidae": "Junco Sparrow Towhee",
    "Passeridae": "House_Sparrow",
    "Pelecanidae": "Pelican",
    "Phalacrocoracidae": "Cormorant",
    "Picidae": "Flicker Woodpecker",
    "Podicipedidae": "Grebe",
    "Procellariidae": "Fulmar",
    "Ptilonorhynchidae": "Spotted_Catbird",
    "Sittidae": "Nuthatch",
    "Stercorariidae": "Jaeger",
    "Sturnidae": "Starling",
    "Trochilidae": "Hummingbird Violetear",
    "Troglodytidae": "Wren",
    "Tyrannidae": "Flycatcher Kingbird Pewee Sayornis",
    "Vireonidae": "Vireo",
}
FAMILY_OF = {word: family for family, words in FAMILIES.items() for word in words.split()}


def read(root: Path) -> published.Dataset:
    """Read the photographs; part ``train`` has the kinds 1 to 100, ``test`` those from 101 on."""
    folder = root / "CUB_200_2011" / "images"
    if not folder.is_dir():
        published.refuse_missing(folder, "one folder of images for each of the 200 kinds")
    images = list_images(folder)
    kinds = [folders[0] for folders in images.values()]
    labels, names = published.number_names(kinds)
    if len(names) != CLASSES:
        _check.refuse(f"{folder} must hold {CLASSES} kinds; it holds {len(names):,}.")
    family_of = {kind: find_family(kind) for kind in names}
    families, family_names = published.number_names([family_of[kind] for kind in kinds])
    train = int((labels < TRAINED).sum())  # the folders come in the order of their numbers
    files = published.open_images(list(images), NAME)
    return published.Dataset(
        Examples(files, labels, families, names, family_names),
        published.split_in_order(train=train, test=len(kinds) - train),
    )


def find_family(kind: str) -> str:
    """Find the family of a kind, by its name or its last word.

    >>> find_family("019.Gray_Catbird"), find_family("001.Black_footed_Albatross")
    ('Mimidae', 'Diomedeidae')
    """
    name = kind.partition(".")[2]
    family = FAMILY_OF.get(name) or FAMILY_OF.get(name.rpartition("_")[2])
    if family is None:
        _check.refuse(f"{kind} is not a kind of bird in {NAME}.")
    return family
