"""Notes of a made-up person who writes software for tide gauges and has a household: the device's library.

Nothing in them can be guessed or looked up. Half of them is about the work, and names Python's enhancement proposals.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_HOUSEHOLD: Final = {
    "boiler": """The boiler in the cellar is a Vestalux. Henning Mook serviced it on 9 October and set the pressure to
        1.7 bar. He wants to come again in two years.""",
    "dentist": "My dentist is Doctor Ysolde Farkas in Mühlgasse. The next check-up is on 14 May at 8:20.",
    "cats": """We have two cats. Biscuit is the grey one and eats only tuna. Semolina is the tabby; she needs half a
        tablet for her thyroid every morning.""",
    "cello": """Wilma's cello lessons are on Wednesday at five o'clock in the old customs house. Her teacher is Madame
        Oriol. The cello is rented from Liebrecht for 23 euros a month.""",
    "allotment": "Our allotment is plot 83 behind the railway bridge. The water is turned off on 28 October.",
    "bicycle": """The cargo bicycle has a drum brake in front and eleven gears. The key of its lock hangs behind the
        clock in the kitchen.""",
    "wifi": """The guest network at home is called Puffinburrow. I change its password at New Year; this year it is on
        the back of the fridge calendar.""",
    "bread": "The rye bread rests for 16 hours, then bakes for fifty minutes at 235 degrees in the iron pot.",
    "holiday": """In summer we go to Stromness for twelve days. The ferry leaves from Scrabster, and the cottage belongs
        to Mrs Linklater. We must bring our own towels.

        Tobias books the trains, I book the ferry.""",
    "insurance": "The household insurance is with Nordhafen. Water damage is covered up to 40,000 euros.",
    "neighbours": """The Adeyemis on the second floor water our plants when we are away. Their son Kola feeds the cats
        for four euros a day.""",
    "car": "We share a red Dacia with Tobias's sister. It has its winter tyres put on at Garage Pohl.",
    "choir": """The choir sings Duruflé at Easter. Rehearsals are in the gymnasium of the Lessing school, and Benedikt
        conducts.""",
    "passport": "Wilma's passport runs out on 3 August 2033. Mine was issued in Oldenburg.",
    "piano": """The piano tuner is Ottoline Grabe. She said that the piano must not stand by the radiator, and that the
        lowest string is cracked.""",
    "cellar": """The light in the cellar goes on with the switch behind the wine rack. The spare fuses are in a blue
        biscuit tin on the top shelf.""",
    "birthday": "For Tobias's fiftieth birthday we have rented the boathouse. He wishes for a sextant.",
    "trees": "The quince tree was planted in 2016. The medlar next to it has never borne fruit.",
    "doctor": """My blood test in March: iron was too low. Doctor Pahl wrote down 30 milligrams of iron a day, to be
        taken with orange juice and never with coffee.""",
    "school": """The parents' evening of class 6b is in room 117. We are to bring the form for the trip to Heligoland,
        which costs 145 euros.""",
    "recycling": "Paper is collected on every second Thursday. Old paint goes to the depot in Hafenstrasse.",
    "books": "I lent the book about knots to Ferdinand in November. The library card has the number 70418.",
    "loft": "The loft ladder squeaks. The tent, the skis and Wilma's baby clothes are up there.",
    "fish": """Kola asked whether we want his aquarium. It holds 90 litres and would have to stand in the hall, because
        the floor of the study is too weak.""",
}
_WORK: Final = {
    "parser": """Meeting about the parser: Ruth Okonjo decided that the tokenizer may use the operator of PEP 572, the
        assignment expression. Everybody else may use it in tests only.""",
    "upgrade": """The gateway moves to Python 3.13 on 12 June. Until then both versions are tested every night on the
        machine under my desk.""",
    "bet": "Piet bet me a rhubarb cake that there will be a Python 2.8 after all. I said that PEP 404 rules it out.",
    "kiosk": """The program of the kiosk at the harbour is shipped as one Python zip application. Leocadia packs it
        and brings it there on a stick.""",
    "build server": """Anselm switched off the per user site-packages directory on the build server, because somebody's
        home directory had an old numpy in it.""",
    "debugging": """A call of breakpoint() was left in tariff.py and stopped the billing run for three hours. From now
        on the pipeline looks for it.""",
    "servers": """The server Heron still has an old OpenSSL, too old for PEP 644. The servers Plover and Avocet were
        renewed in spring.""",
    "buoys": "Dagny builds the container images of the buoys. They are based on musl, so we need musllinux wheels.",
    "poster": "A poster of the Zen of Python hangs in the meeting room Cormorant. The projector there is broken.",
    "tickets": """Our team keeps its issues in Redmine. Odile would like to move them to GitHub issues, as CPython did,
        but nobody has time before autumn.""",
    "calendar": """Odile plans our release calendar. She wants to copy the annual release cycle of Python, with a
        freeze of six weeks in place of their betas.""",
    "index": """Ruth tested the index of stations with 80,000 station names. The default string hash algorithm of
        Python was no bottleneck.""",
    "handbook": """The handbook got an editorial board like the one of the Python documentation. Wendelin heads it, and
        it meets in the canteen.""",
    "readings": """The lost readings of January: zip() in merge_tides cut the longer list. It now checks the lengths as
        PEP 618 has it. Piet wrote the test.""",
    "clocks": """On 26 October the tide log had one hour twice, when the clocks were moved back. We store local times
        now as PEP 495 says. The station at Sandhaven was the only one with two tides in that hour.""",
    "names": """Piet called a variable wasserhöhe in the alarm code. I don't mind non-ASCII identifiers, but Dagny can't
        type them.""",
    "mathematics": """Wilma's maths teacher, Mister Quist, wants tau in place of pi. I showed her that Python has
        math.tau, and he gave her a star for it.""",
    "takeover": """The project harbourtide on PyPI is abandoned, and we would like to take it over. Gustavo has written
        to its owner twice.""",
    "packages": """Of all our packages only gaugelink was still uploaded to PyPI as an egg. Leocadia has built a wheel
        of it.""",
    "firmware": """Gustavo keeps the old CVS repository of the gauge firmware on a disk in his drawer. He wants to
        convert it to Subversion, of all things, as PEP 347 did.""",
    "onboarding": """New colleagues get a laptop from Frau Stieglitz and sit with Anselm for the first week. The alarm
        system of the office wants a code of six digits, which she hands out.""",
    "conference": """I talk about tide gauges at the conference in Groningen. The talk has 25 minutes, and the hotel is
        called De Zwaan.""",
}
NOTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        name: "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        for name, text in (_HOUSEHOLD | _WORK).items()
    }
)
"""Text of each note by its name."""
