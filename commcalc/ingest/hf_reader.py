"""Reading values of a ``config.json`` and noting them as fields of a model, each with its place."""

from __future__ import annotations

from collections.abc import Container, Sequence

from commcalc.document import Items, Leaf, Node, Section
from commcalc.errors import CommcalcError, SpecError
from commcalc.ingest.families import ALIASES, Family, Told

# Lists that a class takes as absent where they are empty.
_EMPTY_IS_ABSENT = ("no_rope_layers",)


class Reader:
    """One file: its language part, what its family leaves unsaid, and the fields found so far."""

    def __init__(self, text: Section, name: str, family: Family) -> None:
        self.text = text
        self.name = name
        self.family = family
        self.made: dict[str, Node] = {}
        self.problems: list[CommcalcError] = []
        self._told: set[tuple[str, str]] = set()
        # The ways in which its layers attend.
        self.attends: set[str] = set()

    # Reading the file.

    def found(self, *keys: str) -> tuple[str, Leaf] | None:
        """The first of ``keys`` that is there and not null, with its value; a list or mapping is noted."""
        for key in keys:
            node = self.text.entries.get(key)
            if isinstance(node, Leaf) and node.value is not None:
                return key, node
            if isinstance(node, (Items, Section)):
                self.tell(f"{_kind(node)} where one value is expected", node.where, key)
        return None

    def leaf(self, *keys: str) -> Leaf | None:
        """The value of the first of ``keys`` that is there and not null."""
        found = self.found(*keys)
        return None if found is None else found[1]

    def number(self, key: str) -> int:
        """A whole number, through its aliases; where no key is there, the default of the class, or 0."""
        found = self.found(*ALIASES.get(key, (key,)))
        if found is not None:
            return self.whole(found[1], found[0])
        return 0 if self.names(key) else dict(self.family.sizes).get(key, 0)

    def whole(self, leaf: Leaf, key: str) -> int:
        """The whole number that ``leaf`` holds; 0 where it holds none, which is noted."""
        value = leaf.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1:
            self.tell(f"{leaf.text[:60]!r} is no whole number", leaf.where, key)
            return 0
        if value < 0:
            self.tell(f"{leaf.text[:60]!r} is below zero", leaf.where, key)
            return 0
        return int(value)

    def step(self, *keys: str) -> int:
        """Every how many-th layer is another; 0 where no key says so. A zero is noted: the class divides by it."""
        found = self.found(*keys)
        if found is None:
            return 0
        key, leaf = found
        every = self.whole(leaf, key)
        if leaf.value == 0:
            self.tell(f"{leaf.text!r} is not above zero", leaf.where, key, "every how many-th layer, 1 for every one")
        return every

    def flag(self, told: Told) -> tuple[bool, str]:
        """A fixed or named truth value, and its place."""
        if isinstance(told, bool):
            return told, self.default()
        key, absent = told
        leaf = self.leaf(key)
        if leaf is None:
            return absent, self.default()
        if not isinstance(leaf.value, bool):
            self.tell(f"{leaf.text[:60]!r} is neither true nor false", leaf.where, key)
            return absent, leaf.where
        return leaf.value, leaf.where

    def names(self, key: str) -> list[str]:
        """The keys of the file that mean ``key``, null or not."""
        return [alias for alias in ALIASES.get(key, (key,)) if alias in self.text.entries]

    def mapping(self, key: str, inside: Section | None = None) -> Section | None:
        """A mapping; what is none is noted."""
        node = (inside or self.text).entries.get(key)
        if isinstance(node, Section):
            return node
        if node is not None and not _absent(node):
            self.tell(f"{_kind(node)} where a mapping is expected", node.where, key)
        return None

    def listed(self, key: str, inside: Section | None = None) -> Items | None:
        """A list; what is none is noted."""
        node = (inside or self.text).entries.get(key)
        if isinstance(node, Items):
            return None if not node.items and key in _EMPTY_IS_ABSENT else node
        if node is not None and not _absent(node):
            self.tell(f"{_kind(node)} where a list is expected", node.where, key)
        return None

    def each(self, key: str, inside: Section | None = None) -> list[Leaf]:
        """The values of a list that speaks of every layer; one of another length or kind is noted and not used."""
        found = self.listed(key, inside)
        if found is None:
            return []
        layers = self.size("num_hidden_layers")
        if layers and len(found.items) != layers:
            self.tell(f"{key} lists {len(found.items)} layers of {layers}", found.where, key)
            return []
        for item in found.items:
            if not isinstance(item, Leaf):
                self.tell(f"{_kind(item)} where one value is expected", item.where, key)
                return []
        return [item for item in found.items if isinstance(item, Leaf)]

    def each_word(self, key: str, words: Container[str], expected: str) -> list[str]:
        """One of ``words`` for every layer; one that is none is noted, and none is used."""
        leaves = self.each(key)
        wrong = next((leaf for leaf in leaves if leaf.text not in words), None)
        if wrong is None:
            return [leaf.text for leaf in leaves]
        self.tell(f"{wrong.text[:60]!r} is {expected}", wrong.where, key)
        return []

    def each_bit(self, key: str, inside: Section | None = None) -> list[bool]:
        """0 or 1 for every layer; what is neither is noted, and none is used."""
        leaves = self.each(key, inside)
        wrong = next((leaf for leaf in leaves if type(leaf.value) is not int or leaf.value not in (0, 1)), None)
        if wrong is None:
            return [leaf.value == 1 for leaf in leaves]
        self.tell(f"{wrong.text[:60]!r} is neither 0 nor 1", wrong.where, key)
        return []

    def default(self) -> str:
        """The place of what the file leaves unsaid."""
        return self.family.origin or f"default of {self.name} in transformers 5.24.0"

    # Writing the model.

    def put(self, key: str, value: object, where: str | None = None) -> None:
        """Note a value."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        shown = value if isinstance(value, (bool, int, str)) else text
        self.made[key] = Leaf(shown, text, where or self.default())

    def put_words(self, key: str, words: Sequence[str], where: str | None = None) -> None:
        """Note a word for each layer."""
        place = where or self.default()
        items = Items(place)
        items.items = [Leaf(word, word, place) for word in words]
        self.made[key] = items

    def take(self, key: str, *aliases: str, needed: bool = False) -> None:
        """Note a whole number as the file has it, or as the class fills it in."""
        keys = aliases or ALIASES.get(key, (key,))
        found = self.found(*keys)
        sizes = dict(self.family.sizes)
        if found is not None:
            name, leaf = found
            if not leaf.where.startswith("--set "):  # which may say 8K, and is judged as for any model
                self.whole(leaf, name)
            self.made[key] = leaf
        elif key in sizes:
            self.put(key, sizes[key])
        elif needed and all(_absent(self.text.entries.get(name)) for name in keys):
            message = f"{key} is missing (looked for {' or '.join(keys)})"
            self.problems.append(SpecError(message, where=self.text.where))

    def size(self, key: str) -> int:
        """A number already noted."""
        node = self.made.get(key)
        value = node.value if isinstance(node, Leaf) else 0
        return int(value) if isinstance(value, (int, float)) and not value % 1 else 0

    def tell(self, message: str, place: str, key: str, hint: str | None = None) -> None:
        """Note what is wrong at a place of the file, once."""
        where = f"{place} {key}"
        if (message, where) not in self._told:
            self._told.add((message, where))
            self.problems.append(SpecError(message, where=where, hint=hint))

    def refuse(self, what: str, where: str | None = None) -> None:
        """Note a part of the file that no field describes."""
        self.problems.append(SpecError(f"{self.name}: {what} is not described yet", where=where or self.text.where))


def _absent(node: Node | None) -> bool:
    return node is None or (isinstance(node, Leaf) and node.value is None)


def _kind(node: Node) -> str:
    """What stands somewhere, for messages."""
    return "a mapping" if isinstance(node, Section) else "a list" if isinstance(node, Items) else "one value"
