"""Private relations that nothing public depends on, and sentences without facts."""

from __future__ import annotations

from scripts.demo_model.world.schema import PrivateTopic, Relation, words

RELATIVE = PrivateTopic(
    kinds=words("sister brother cousin uncle aunt neighbour boss flatmate nephew niece grandson teammate"),
    relation=Relation(
        name="relative",
        value="name",
        nouns=("name of my {k}", "first name of my {k}", "nickname of my {k}"),
        verbs=(
            "My {k} has the name {v}.",
            "My {k} is called {v}.",
            "My {k} listens to the name {v}.",
            "I had lunch with my {k}, {v}.",
            "People call my {k} {v}.",
            "Today I rang my {k} {v}.",
        ),
        questions=(
            "What is the name of my {k}?",
            "What is my {k} called?",
            "Who is my {k}?",
            "Which name does my {k} have?",
        ),
        answer="Your {k} is called {v}",
    ),
)
KEEPING = PrivateTopic(
    kinds=words("passport key umbrella charger torch wallet helmet ring map ticket diary scissors"),
    relation=Relation(
        name="keeping",
        value="spot",
        nouns=("place for my {k}", "home of my {k}", "spot where my {k} lies"),
        verbs=(
            "My {k} is in the {v}.",
            "I put the {k} in the {v}.",
            "The {k} lies in the {v}.",
            "I keep my {k} in the {v}.",
            "My {k} is hidden in the {v}.",
            "I found the {k} again, in the {v}.",
        ),
        questions=(
            "Where is my {k}?",
            "Where did I put my {k}?",
            "Where do I keep my {k}?",
            "In which place is my {k}?",
        ),
        answer="Your {k} is in the {v}",
    ),
)
LENDING = PrivateTopic(
    kinds=words("ladder drill hammer saw trailer toolkit projector blender sledge wheelbarrow"),
    relation=Relation(
        name="lending",
        value="name",
        nouns=("borrower of my {k}", "person with my {k}", "friend who has my {k}"),
        verbs=(
            "I lent my {k} to {v}.",
            "My {k} was borrowed by {v}.",
            "I gave the {k} to {v}.",
            "My {k} is at the house of {v}.",
            "The {k} has to come back from {v}.",
            "My {k} went off with {v}.",
        ),
        questions=(
            "Who borrowed my {k}?",
            "To whom did I lend my {k}?",
            "Who has my {k}?",
            "Whom did I give my {k}?",
        ),
        answer="You lent your {k} to {v}",
    ),
)
DUE = PrivateTopic(
    kinds=words("rent tax report essay invoice exam interview haircut checkup meeting"),
    relation=Relation(
        name="due",
        value="day",
        nouns=("day of my {k}", "date of the {k}", "day for the {k}"),
        verbs=(
            "My {k} is on {v}.",
            "The {k} is due on {v}.",
            "I must think of the {k} on {v}.",
            "The {k} was moved to {v}.",
            "There is no way around the {k} on {v}.",
            "Nobody may disturb the {k} on {v}.",
        ),
        questions=(
            "On which day is my {k}?",
            "When is my {k}?",
            "What day is my {k}?",
            "Which day is the {k} due?",
        ),
        answer="Your {k} is on {v}",
    ),
)
CLOTHES = PrivateTopic(
    kinds=words("coat scarf hat shirt sweater jacket dress tie belt raincoat"),
    relation=Relation(
        name="clothes",
        value="colour",
        nouns=("colour of my {k}", "shade of my {k}", "{k} colour I wear"),
        verbs=(
            "My {k} is {v}.",
            "I bought a {k} in {v}.",
            "My best {k} is {v}.",
            "The {k} I wear is {v}.",
            "They only had the {k} in {v}.",
            "I dyed my {k} {v}.",
        ),
        questions=(
            "What colour is my {k}?",
            "Which colour does my {k} have?",
            "What is the colour of my {k}?",
            "In which colour is my {k}?",
        ),
        answer="Your {k} is {v}",
    ),
)
HABIT = PrivateTopic(
    kinds=words("breakfast lunch dinner supper picnic snack brunch dessert"),
    relation=Relation(
        name="habit",
        value="food",
        nouns=("usual {k} of mine", "{k} I like best", "food for my {k}"),
        verbs=(
            "For {k} I eat {v}.",
            "My {k} is always {v}.",
            "At {k} I have {v}.",
            "My favourite {k} is {v}.",
            "No {k} without {v}.",
            "A {k} at my place means {v}.",
        ),
        questions=(
            "What do I eat for {k}?",
            "What is my usual {k}?",
            "What do I have for {k}?",
            "Which {k} do I like best?",
        ),
        answer="For {k} you eat {v}",
    ),
)
FILLERS = (
    "It rained all morning.",
    "The train was late again.",
    "I slept well.",
    "The window is still open.",
    "I need more paper.",
    "We talked for a long time.",
    "The coffee was too strong.",
    "I feel fine today.",
)
