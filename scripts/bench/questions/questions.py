"""Questions about the notes and the public texts, with the answers that count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from proto.fields import Side
from scripts.bench.measuring import grouped

Kind = Literal["device", "cloud", "both", "nobody"]
ALTERNATIVE: Final = "|"


@dataclass(frozen=True, slots=True)
class Question:
    """A question. A right answer has one of each part's alternatives and nothing that is `wrong`, which is said nowhere
    in the text that answers.
    """

    kind: Kind
    text: str
    parts: tuple[tuple[str, ...], ...] = ()
    wrong: tuple[str, ...] = ()
    note: str = ""  # name of the note that has the first part; empty: none
    pep: int = 0  # number of the proposal that has the last part; 0: none
    near: Side | None = None  # whose documents are close to it, where nobody answers it


def _of_note(note: str, text: str, answer: str, wrong: str = "") -> Question:
    return Question("device", text, (_alternatives(answer),), _alternatives(wrong), note)


def _of_pep(pep: int, text: str, answer: str, wrong: str = "") -> Question:
    return Question("cloud", text, (_alternatives(answer),), _alternatives(wrong), pep=pep)


def _of_both(note: str, pep: int, text: str, private: str, public: str) -> Question:
    return Question("both", text, (_alternatives(private), _alternatives(public)), (), note, pep)


def _alternatives(answers: str) -> tuple[str, ...]:
    return tuple(answers.split(ALTERNATIVE)) if answers else ()


OF_DEVICE: Final = (
    _of_note("boiler", "To which pressure was the boiler set?", "1.7"),
    _of_note("dentist", "What is my dentist called?", "Ysolde Farkas|Farkas", "Pahl"),
    _of_note("cats", "What does Biscuit eat?", "tuna"),
    _of_note("cello", "Who teaches Wilma the cello?", "Oriol", "Quist"),
    _of_note("allotment", "Which number has our plot in the allotment?", "83", "28"),
    _of_note("bicycle", "How many gears does the cargo bicycle have?", "eleven"),
    _of_note("wifi", "What is the guest network at home called?", "Puffinburrow"),
    _of_note("bread", "For how many hours does the rye bread rest?", "16"),
    _of_note("holiday", "Who owns the cottage in Stromness?", "Linklater"),
    _of_note("insurance", "With which company is the household insurance?", "Nordhafen"),
    _of_note("neighbours", "Who feeds the cats when we are away?", "Kola"),
    _of_note("car", "Where are the winter tyres put on?", "Garage Pohl|Pohl"),
    _of_note("choir", "Who conducts the choir?", "Benedikt"),
    _of_note("passport", "When does Wilma's passport run out?", "3 August 2033|August 2033"),
    _of_note("piano", "Who is the piano tuner?", "Ottoline Grabe|Grabe|Ottoline"),
    _of_note("cellar", "Where are the spare fuses?", "biscuit tin|tin|top shelf", "fridge"),
    _of_note("birthday", "What does Tobias wish for on his birthday?", "sextant"),
    _of_note("trees", "When was the quince tree planted?", "2016"),
    _of_note("school", "In which room is the parents' evening?", "117"),
    _of_note("books", "To whom did I lend the book about knots?", "Ferdinand"),
)
OF_CLOUD: Final = (
    _of_pep(401, "Who was chosen as Friendly Language Uncle For Life?", "Barry Warsaw|Uncle Barry|Barry"),
    _of_pep(3003, "For how many years at least does the moratorium suspend changes to the Python language?", "two"),
    _of_pep(313, "As which PEP is the PEP about Roman numeral literals also known?", "CCCXIII"),
    _of_pep(486, "Which environment variable does the Python launcher check for a virtualenv?", "VIRTUAL_ENV"),
    _of_pep(476, "Which release of Twisted made certificate verification the default?", "14.0|14"),
    _of_pep(
        412,
        "By how many per cent do key-sharing dictionaries reduce the memory use of object-oriented programs?",
        "10 to 20|10-20|10 and 20|10% to 20%|10 percent to 20",
    ),
    _of_pep(811, "Within how many days is a vulnerability report to be finished by its coordinator?", "90"),
    _of_pep(731, "How many members has the C API Working Group at least?", "three"),
    _of_pep(592, "Which attribute of a link marks a file of the simple repository as yanked?", "data-yanked"),
    _of_pep(506, "What is the module for passwords and tokens called that PEP 506 adds?", "secrets"),
    _of_pep(435, "Which package did Guido propose adding to the standard library as enumeration type?", "flufl.enum"),
    _of_pep(373, "Who is the release manager of Python 2.7?", "Benjamin Peterson|Peterson", "Biggles|Wouters"),
    _of_pep(745, "Who is the release manager of Python 3.14?", "Hugo van Kemenade|Kemenade", "Wouters|Biggles"),
    _of_pep(3154, "Which opcode replaces GLOBAL in pickle protocol 4?", "STACK_GLOBAL"),
    _of_pep(7, "Which C standard do Python 3.11 and newer versions use for their C code?", "C11", "C89"),
    _of_pep(816, "Which versions of the WASI SDK have a bug that causes CPython to hang?", "26 and 27|26, 27|26 or 27"),
    _of_pep(775, "Which platform is the only exception where CPython may be built without zlib?", "WASI"),
    _of_pep(464, "Which algorithm makes the PyPI Mirror Authenticity API vulnerable to leaking its key?", "DSA"),
    _of_pep(449, "On which date are the DNS entries of the PyPI mirrors removed?", "15 February 2014|15 February"),
    _of_pep(305, 'What does the "V" in the acronym CSV stand for, as has been suggested?', "Vague"),
)
OF_BOTH: Final = (
    _of_both(
        "parser",
        572,
        "Who decided that the tokenizer may use the operator of PEP 572, and which operator is this called?",
        "Ruth Okonjo|Ruth|Okonjo",
        "walrus",
    ),
    _of_both(
        "poster",
        20,
        "In which meeting room does the Zen of Python hang, and how many aphorisms does it have?",
        "Cormorant",
        "20|19",
    ),
    _of_both(
        "bet",
        404,
        "What did Piet bet on Python 2.8, and who is its un-release manager?",
        "rhubarb cake|cake",
        "Cardinal Biggles|Biggles",
    ),
    _of_both(
        "upgrade",
        719,
        "When does the gateway move to Python 3.13, and who is the release manager of Python 3.13?",
        "12 June",
        "Thomas Wouters|Wouters",
    ),
    _of_both(
        "kiosk",
        441,
        "Who packs the program of the kiosk, and which extension do Python zip applications have?",
        "Leocadia",
        "pyz",
    ),
    _of_both(
        "build server",
        370,
        "Who switched off the user site directory on the build server, and which environment variable suppresses it?",
        "Anselm",
        "PYTHONNOUSERSITE",
    ),
    _of_both(
        "debugging",
        553,
        "In which file was breakpoint() left, and which environment variable sets what breakpoint() calls?",
        "tariff.py|tariff",
        "PYTHONBREAKPOINT",
    ),
    _of_both(
        "servers",
        644,
        "Which server still has an old OpenSSL, and which version of OpenSSL does Python require?",
        "Heron",
        "1.1.1",
    ),
    _of_both(
        "buoys",
        656,
        "Who builds the images of the buoys, and which Linux distribution based on musl is popular?",
        "Dagny",
        "Alpine",
    ),
    _of_both(
        "tickets",
        581,
        "Where does our team keep its issues, and which issue tracker did CPython use before GitHub?",
        "Redmine",
        "Roundup",
    ),
    _of_both(
        "calendar",
        602,
        "Who plans our release calendar, and for how many months is a feature version of Python developed?",
        "Odile",
        "seventeen",
    ),
    _of_both(
        "index",
        456,
        "How many station names was the index tested with, and which string hash algorithm does PEP 456 propose?",
        "80,000|80 thousand",
        "SipHash",
    ),
    _of_both(
        "handbook",
        732,
        "Who heads our handbook's board, and how many members has the Python Documentation Editorial Board?",
        "Wendelin",
        "five",
    ),
    _of_both(
        "readings",
        618,
        "Where did zip() cut the longer list, and which keyword parameter of zip() raises a ValueError then?",
        "merge_tides",
        "strict",
    ),
    _of_both(
        "clocks",
        495,
        "On which day did the tide log have an hour twice, and which attribute tells such local times apart?",
        "26 October",
        "fold",
    ),
    _of_both(
        "names",
        3131,
        "What did Piet call a variable in the alarm code, and which normal form are identifiers converted into?",
        "wasserhöhe|wasserhohe|wasserhoehe",
        "NFKC",
    ),
    _of_both(
        "mathematics",
        628,
        "What is Wilma's maths teacher called, and since which version does Python have math.tau?",
        "Quist",
        "3.6",
    ),
    _of_both(
        "takeover",
        541,
        "Which project on PyPI would we like to take over, and after how many weeks is its owner given up?",
        "harbourtide",
        "six",
    ),
    _of_both(
        "packages",
        715,
        "Which of our packages was uploaded as an egg, and in which year was the egg format introduced?",
        "gaugelink",
        "2004",
    ),
    _of_both(
        "firmware",
        347,
        "Who keeps the old CVS repository, and with which utility is it converted to Subversion?",
        "Gustavo",
        "cvs2svn",
    ),
)
NEAR_NOTES: Final = (  # and no note says it
    "What is my dentist's telephone number?",
    "How old is the boiler in the cellar?",
    "What is the surname of Madame Oriol's husband?",
    "How much rent do we pay for the allotment?",
    "What did the cargo bicycle cost?",
    "Which breed of dog do we have?",
    "How much flour does the rye bread take?",
    "What does the cottage in Stromness cost a week?",
    "What is the policy number of the household insurance?",
    "On which floor do we live ourselves?",
    "What is the number plate of the red Dacia?",
    "On which day of the week does the choir rehearse?",
    "When does Tobias's passport run out?",
    "How old is the piano?",
    "How many bottles are in the wine rack?",
    "On which date is Tobias's birthday?",
    "What height has the quince tree?",
    "What is Doctor Pahl's first name?",
    "What is the name of Wilma's class teacher?",
    "On which day is the glass collected?",
    "Who is the author of the book about knots?",
    "How many people fit into the tent in the loft?",
    "Which fish are in Kola's aquarium?",
    "What is the code of the alarm system of the office?",
    "How long is the ferry from Scrabster under way?",
    "What is the title of my talk in Groningen?",
    "Who repaired the projector in the meeting room Cormorant?",
    "How much memory does the server Plover have?",
    "What is Ruth Okonjo's e-mail address?",
    "Who is the owner of the project harbourtide?",
)
NEAR_PUBLIC: Final = (  # and no public text says it
    "Who is the release manager of Python 3.5?",
    "When was the final release of Python 3.4.0?",
    "Who makes the Linux installers of Python 3.13?",
    "How many downloads a day does PyPI have?",
    "In which city does the C API Working Group meet?",
    "How much is a member of the steering council paid?",
    "Which animal is the mascot of the Python Security Response Team?",
    "Who coined the name walrus operator?",
    "Which compiler compiles CPython for Android?",
    "How many lines of code does the argparse module have?",
    "Which keyword does PEP 634 introduce for pattern matching?",
    "What is the licence of the Roundup issue tracker?",
    "How many wheels on PyPI are built for musllinux?",
    "Who designed the logo of Python?",
    "At which university did Tim Peters study?",
    "How many bytes does a key-sharing dictionary of ten keys take?",
    "Which password did the Subversion server of Python have?",
    "How many issues were moved from Roundup to GitHub?",
    "Who drew the pictures of the Python documentation?",
    "Which decorator makes a dataclass, according to PEP 557?",
    "How many votes did the moratorium on the Python language get?",
    "Which speed in words per cycle does SipHash reach on a Cortex processor?",
    "What does the domain python.org cost a year?",
    "Which operator does PEP 465 add for matrix multiplication?",
    "In which year was Uncle Barry born?",
    "Which exception group syntax does PEP 654 add?",
    "Which editor does PEP 7 recommend for C code?",
    "How many people attended the Python Language Summit of 2012?",
    "What is the name of the server that runs docs.python.org?",
    "Which file format does PEP 518 choose for build requirements?",
)
OF_NOBODY: Final = (
    *(Question("nobody", text, near="device") for text in NEAR_NOTES),
    *(Question("nobody", text, near="cloud") for text in NEAR_PUBLIC),
)
QUESTIONS: Final = (*OF_DEVICE, *OF_CLOUD, *OF_BOTH, *OF_NOBODY)


def first_of_each(count: int) -> tuple[Question, ...]:
    """The first `count` questions of each kind, and of those that nobody answers, of each side."""
    alike = grouped(QUESTIONS, lambda each: (each.kind, each.near))
    return tuple(each for same in alike.values() for each in same[:count])
