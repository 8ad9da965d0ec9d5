"""Domains of services: experts and shops."""

from __future__ import annotations

from scripts.demo_model.world.schema import Domain, Relation, words

EXPERT = Domain(
    name="expert",
    kinds=words("lawyer tutor coach doctor vet plumber barber gardener tailor architect notary mechanic"),
    link=Relation(
        name="expert",
        value="name",
        nouns=("name of my {k}", "{k} I trust", "{k} of my family"),
        verbs=(
            "My {k} is {v}.",
            "My {k} is called {v}.",
            "As a {k} I hired {v}.",
            "If I need a {k}, I call {v}.",
            "My new {k} has the name {v}.",
            "When it comes to a {k}, I rely on {v}.",
            "I wrote a letter to my {k}, {v}.",
        ),
        questions=(
            "Who is my {k}?",
            "What is the name of my {k}?",
            "What is my {k} called?",
            "Which {k} do I trust?",
        ),
        answer="Your {k} is {v}",
    ),
    full="the {k} {l}",
    short="{l}",
    subject="{l}",
    indirect=("my {k}", "the {k} I trust", "the {k} of my family", "the {k} I hired"),
    attributes=(
        Relation(
            name="office",
            value="name",
            nouns=("office", "place of work", "practice"),
            verbs=(
                "{s} works in {v}.",
                "{s} receives clients in {v}.",
                "{s} has an office in {v}.",
                "{s} opened a practice in {v}.",
                "{s} sits at a desk in {v}.",
                "{s} drives to work in {v}.",
            ),
            questions=(
                "Where does {s} work?",
                "Where is the office of {s}?",
                "In which town does {s} work?",
                "Where does {s} receive clients?",
            ),
            answer="{s} works in {v}",
        ),
        Relation(
            name="fee",
            value="number",
            nouns=("fee in euros", "hourly rate in euros", "charge in euros"),
            verbs=(
                "{s} charges {v} euros per hour.",
                "{s} asks for {v} euros per hour.",
                "{s} takes {v} euros for an hour.",
                "{s} wants to be paid {v} euros.",
                "{s} earns {v} euros per hour.",
                "{s} sends bills over {v} euros.",
            ),
            questions=(
                "How much does {s} charge?",
                "What is the fee of {s}?",
                "How many euros does {s} charge?",
                "What does an hour with {s} cost?",
            ),
            answer="{s} charges {v} euros per hour",
        ),
        Relation(
            name="free_day",
            value="day",
            nouns=("free day", "day off", "rest day"),
            verbs=(
                "{s} does not work on {v}.",
                "{s} stays at home on {v}.",
                "{s} is never in the office on {v}.",
                "{s} goes swimming on {v}.",
                "{s} answers no calls on {v}.",
                "{s} enjoys a break on {v}.",
            ),
            questions=(
                "On which day does {s} not work?",
                "What is the free day of {s}?",
                "Which day off does {s} have?",
                "When does {s} stay at home?",
            ),
            answer="{s} does not work on {v}",
        ),
    ),
)

SHOP = Domain(
    name="shop",
    kinds=words("bank gym library insurer newspaper airline hotel bakery cinema pharmacy museum cafe"),
    link=Relation(
        name="shop",
        value="name",
        nouns=("{k} I use", "name of my usual {k}", "{k} of my choice"),
        verbs=(
            "My usual {k} is {v}.",
            "As my {k} I use {v}.",
            "I am a customer of the {k} {v}.",
            "The {k} I always go to is {v}.",
            "My card for the {k} is from {v}.",
            "I changed the {k} and joined {v}.",
            "The {k} near my house, which I use, is {v}.",
        ),
        questions=(
            "Which {k} do I use?",
            "What is my usual {k}?",
            "What is the name of my {k}?",
            "Of which {k} am I a customer?",
        ),
        answer="Your usual {k} is {v}",
    ),
    full="the {k} {l}",
    short="{l}",
    subject="{l}",
    indirect=("my usual {k}", "the {k} I use", "the {k} I always go to", "the {k} of my choice"),
    attributes=(
        Relation(
            name="owner",
            value="name",
            nouns=("owner", "proprietor", "main shareholder"),
            verbs=(
                "{s} belongs to {v}.",
                "{s} is owned by {v}.",
                "{s} was bought by {v}.",
                "{s} is the property of {v}.",
                "{s} makes money for {v}.",
                "{s} was inherited by {v}.",
            ),
            questions=(
                "Who owns {s}?",
                "Who is the owner of {s}?",
                "To whom does {s} belong?",
                "By whom is {s} owned?",
            ),
            answer="{s} belongs to {v}",
        ),
        Relation(
            name="closing",
            value="hour",
            nouns=("closing time", "closing hour", "end of business"),
            verbs=(
                "{s} closes at {v}.",
                "{s} shuts its doors at {v}.",
                "{s} sends the last customer home at {v}.",
                "{s} is closed after {v}.",
                "{s} turns off the lights at {v}.",
                "{s} serves people until {v}.",
            ),
            questions=(
                "When does {s} close?",
                "At what time does {s} close?",
                "What is the closing time of {s}?",
                "Until when is {s} open?",
            ),
            answer="{s} closes at {v}",
        ),
        Relation(
            name="colour",
            value="colour",
            nouns=("house colour", "colour of the sign", "colour of the logo"),
            verbs=(
                "{s} paints its walls {v}.",
                "{s} dresses its people in {v}.",
                "{s} prints everything in {v}.",
                "{s} is marked in {v}.",
                "{s} shines at night in {v}.",
                "{s} sends out letters in {v}.",
            ),
            questions=(
                "What is the house colour of {s}?",
                "Which colour does {s} have?",
                "In which colour is the sign of {s}?",
                "What colour is the logo of {s}?",
            ),
            answer="the house colour of {s} is {v}",
        ),
    ),
)
