"""Values: invented names of two tokens, and short closed lists of one-token words."""

from __future__ import annotations

import random
import zlib

from scripts.demo_model.world.schema import words

UNKNOWN = "unknown"
"""What an answer says where a document does not hold the value."""

PREFIXES = words(
    "Bal Bel Bor Bren Cal Cor Dal Dar Del Dor Dra Dun Fal Fen Fir Fol Gal Gar Gel Gor Gri Hal "
    "Har Hel Hin Hol Jal Jas Jen Jor Kal Kar Kel Kin Kor Kul Lan Lar Len Lin Lor Lum Mal Mar "
    "Mel Mir Mol Mor Nal Nar Nel Nim Nor Nul Ol Or Pal Par Pel Pin Pol Pra Quil Ral Ran Rel "
    "Rin Ros Rul Sal Sar Sel Sil Sol Sun Tal Tar Tel Tin Tol Tor Tul Ul Ur Val Var Vel Vin "
    "Vol Vor Wal War Wel Win Wol Wyn Xal Xer Yal Yor Yul Zal Zan Zel Zor"
)
SUFFIXES = words(
    "ba bax beck bia bris ca cad cea cim dane dax dell deth dia dine dor dova dra fane fax "
    "fia fin foss ga gan geth gia gor gua hab hane heim hine ja jax jin ka kane keth kin kora "
    "ku lax leth lia lis lov ma max meth mia mond mora mu na neth nia nix nora nu pax peth "
    "pia pola qua rax reth ria ric rova sa seth sia sora sten ta tane tex tia tora tu vana "
    "vax veth via vik vola wen wick xa xia ya yeth zan zeth zia zola"
)
CLOSED: dict[str, tuple[str, ...]] = {
    "genre": words(
        "simulation puzzle strategy racing horror romance fantasy mystery adventure comedy "
        "history sport action crime space western survival music political family detective war "
        "travel nature pirate robot school medical dragon ocean desert winter magic business "
        "farming ghost spy monster animal island"
    ),
    "number": words(
        "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty thirty forty fifty"
    ),
    "hour": words("five six seven eight nine ten eleven twelve noon midnight dawn dusk"),
    "month": words("January February March April May June July August September October November December"),
    "day": words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "food": words(
        "soup pie stew bread dumplings noodles salad rice lentils beans corn cheese lamb duck "
        "pumpkin mushrooms carrots berries nuts seeds hay fish oats plums apples onions potatoes "
        "honey eggs olives"
    ),
    "herb": words(
        "ginger mint sage thyme garlic camomile lavender fennel basil parsley nettle ivy clover "
        "aloe ginseng turmeric cinnamon vanilla mustard pepper rosemary anise saffron lemon cumin "
        "dill oregano cloves hops juniper"
    ),
    "colour": words(
        "red blue green yellow purple orange brown black white grey pink golden silver violet turquoise beige"
    ),
    "spot": words(
        "drawer cupboard basket cellar attic garage wardrobe suitcase hallway kitchen bathroom "
        "shed backpack bookcase fridge locker chest toolbox balcony desk"
    ),
}


def held_out(name: str) -> bool:
    """Whether a name is kept for evaluation: one in ten, by a hash of the name."""
    return zlib.crc32(name.encode()) % 10 == 0


class Names:
    """Draws values; ``test`` draws held-out names only, otherwise they never occur.

    ``long_share`` is the share of names with a third piece: they teach copying of longer values.
    """

    def __init__(self, random_: random.Random, test: bool = False, long_share: float = 0.0) -> None:
        self._random = random_
        self._test = test
        self._long_share = long_share

    def name(self) -> str:
        """An invented name."""
        while True:
            name = self._random.choice(PREFIXES) + self._random.choice(SUFFIXES)
            if self._random.random() < self._long_share:
                name += self._random.choice(SUFFIXES)
            if held_out(name) == self._test:
                return name

    def value(self, kind: str) -> str:
        """A value of a type: ``name`` or one of the closed lists."""
        return self.name() if kind == "name" else self._random.choice(CLOSED[kind])
