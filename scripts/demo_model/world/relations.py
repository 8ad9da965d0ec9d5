"""All relations of the world, by the place they have in it."""

from __future__ import annotations

from scripts.demo_model.world.domains_living import AILMENT, PET, PLANT
from scripts.demo_model.world.domains_places import RESORT, SCHOOL
from scripts.demo_model.world.domains_services import EXPERT, SHOP
from scripts.demo_model.world.domains_things import MAKER, WORK
from scripts.demo_model.world.private_topics import CLOTHES, DUE, HABIT, KEEPING, LENDING, RELATIVE

DOMAINS = (MAKER, WORK, PLANT, PET, SCHOOL, RESORT, EXPERT, AILMENT, SHOP)
TOPICS = (RELATIVE, KEEPING, LENDING, DUE, CLOTHES, HABIT)
PRIVATE_RELATIONS = tuple(domain.link for domain in DOMAINS) + tuple(topic.relation for topic in TOPICS)
PUBLIC_RELATIONS = tuple(relation for domain in DOMAINS for relation in domain.attributes)
