"""Domains of places: schools and resorts."""

from __future__ import annotations

from scripts.demo_model.world.schema import Domain, Relation, words

SCHOOL = Domain(
    name="school",
    kinds=words("dance yoga chess pottery painting boxing cooking judo sewing violin drawing fencing"),
    link=Relation(
        name="venue",
        value="name",
        nouns=("place of my {k} class", "school of my {k} class", "{k} school I go to"),
        verbs=(
            "My {k} class is at {v}.",
            "I take my {k} class at {v}.",
            "The {k} class I booked takes place at {v}.",
            "For {k} I go to {v}.",
            "My next {k} class will be held at {v}.",
            "I never miss {k} at {v}.",
            "On weekends I learn {k} at {v}.",
        ),
        questions=(
            "Where is my {k} class?",
            "At which school is my {k} class?",
            "Where do I take my {k} class?",
            "Which {k} school do I go to?",
        ),
        answer="Your {k} class is at {v}",
    ),
    full="the {k} school {l}",
    short="{l}",
    subject="{l}",
    indirect=(
        "the school of my {k} class",
        "the place of my {k} class",
        "the {k} school I go to",
        "the school where I learn {k}",
    ),
    attributes=(
        Relation(
            name="opening",
            value="hour",
            nouns=("opening time", "opening hour", "start of business"),
            verbs=(
                "{s} opens at {v}.",
                "{s} lets people in from {v}.",
                "{s} unlocks its doors at {v}.",
                "{s} is open from {v}.",
                "{s} welcomes its first guests at {v}.",
                "{s} is still shut before {v}.",
            ),
            questions=(
                "When does {s} open?",
                "At what time does {s} open?",
                "What is the opening time of {s}?",
                "From when is {s} open?",
            ),
            answer="{s} opens at {v}",
        ),
        Relation(
            name="street",
            value="name",
            nouns=("street", "address", "location"),
            verbs=(
                "{s} lies in the street {v}.",
                "{s} is found on {v}.",
                "{s} has its entrance on {v}.",
                "{s} is situated in {v}.",
                "{s} stands at the corner of {v}.",
                "{s} is reached through {v}.",
            ),
            questions=(
                "In which street is {s}?",
                "What is the address of {s}?",
                "On which street do I find {s}?",
                "What is the street of {s}?",
            ),
            answer="{s} lies in the street {v}",
        ),
        Relation(
            name="head",
            value="name",
            nouns=("head", "director", "principal"),
            verbs=(
                "{s} is run by {v}.",
                "{s} is headed by {v}.",
                "{s} is in the hands of {v}.",
                "{s} has been led for years by {v}.",
                "{s} listens to its boss {v}.",
                "{s} is managed by {v}.",
            ),
            questions=(
                "Who runs {s}?",
                "Who is the head of {s}?",
                "Who is the director of {s}?",
                "By whom is {s} run?",
            ),
            answer="{s} is run by {v}",
        ),
    ),
)

RESORT = Domain(
    name="resort",
    kinds=words("ski beach hiking sailing wine diving fishing golf camping surfing spa cycling"),
    link=Relation(
        name="trip",
        value="name",
        nouns=("destination of my {k} trip", "goal of my {k} trip", "{k} resort I booked"),
        verbs=(
            "My {k} trip goes to {v}.",
            "For the {k} trip I am travelling to {v}.",
            "My next {k} trip takes me to {v}.",
            "The {k} trip with my family leads to {v}.",
            "I planned the {k} trip for {v}.",
            "This year I go on a {k} trip to {v}.",
            "The {k} trip will end in {v}.",
        ),
        questions=(
            "Where does my {k} trip go?",
            "What is the destination of my {k} trip?",
            "Which {k} resort did I book?",
            "Where am I going on my {k} trip?",
        ),
        answer="Your {k} trip goes to {v}",
    ),
    full="the {k} resort {l}",
    short="{l}",
    subject="{l}",
    indirect=(
        "the destination of my {k} trip",
        "the {k} resort I booked",
        "the goal of my {k} trip",
        "the resort of my {k} trip",
    ),
    attributes=(
        Relation(
            name="sight",
            value="name",
            nouns=("main sight", "landmark", "famous monument"),
            verbs=(
                "{s} is famous for the tower {v}.",
                "{s} attracts visitors with the castle {v}.",
                "{s} is proud of its bridge {v}.",
                "{s} shows its guests the ruin {v}.",
                "{s} is crowned by the fortress {v}.",
                "{s} owes its fame to the temple {v}.",
            ),
            questions=(
                "What is the main sight of {s}?",
                "What should visitors see in {s}?",
                "Which landmark does {s} have?",
                "Which sight is {s} famous for?",
            ),
            answer="the main sight of {s} is {v}",
        ),
        Relation(
            name="dish",
            value="food",
            nouns=("local dish", "speciality", "traditional meal"),
            verbs=(
                "{s} is the home of the best {v}.",
                "{s} serves its guests {v}.",
                "{s} smells of fresh {v}.",
                "{s} offers tasty {v}.",
                "{s} feeds everybody with {v}.",
                "{s} holds a feast of {v}.",
            ),
            questions=(
                "What is the local dish of {s}?",
                "What do people eat in {s}?",
                "What is the speciality of {s}?",
                "Which dish is served in {s}?",
            ),
            answer="the local dish of {s} is {v}",
        ),
        Relation(
            name="season",
            value="month",
            nouns=("best month for a visit", "high season", "busiest month"),
            verbs=(
                "{s} is best visited in {v}.",
                "{s} is full of guests in {v}.",
                "{s} has the finest weather in {v}.",
                "{s} has its season in {v}.",
                "{s} is most beautiful in {v}.",
                "{s} sells out in {v}.",
            ),
            questions=(
                "When is {s} best visited?",
                "In which month is {s} best visited?",
                "What is the best month for {s}?",
                "When is the high season of {s}?",
            ),
            answer="{s} is best visited in {v}",
        ),
    ),
)
