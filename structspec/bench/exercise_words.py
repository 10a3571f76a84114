"""The words that `exercises` makes functions and requests of.

A `Parameter` has a JSON type or an enumeration, a description, values, and a phrase that a request
says a value with. A domain has verbs, nouns and the parameters that suit it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DOMAINS", "OPENINGS", "PARAMETERS", "Parameter"]


@dataclass(frozen=True)
class Parameter:
    """`kind`: a JSON type, "enum" or "array". `values` for the last three; numbers: a range."""

    kind: str
    description: str
    phrase: str
    values: Sequence[Any]

    def value(self, draw: random.Random) -> Any:
        """A value as a request says it."""
        if self.kind == "integer":
            return draw.randint(self.values[0], self.values[1])
        if self.kind == "number":
            return round(draw.uniform(self.values[0], self.values[1]), draw.choice((1, 2)))
        if self.kind == "boolean":
            return ""
        if self.kind == "array":
            return " and ".join(draw.sample(list(self.values), 2))
        return draw.choice(self.values)

    def schema(self, draw: random.Random) -> dict[str, Any]:
        """Its JSON Schema."""
        schema: dict[str, Any]
        if self.kind == "enum":
            schema = {"type": "string", "enum": list(self.values)}
        elif self.kind == "array":
            schema = {"type": "array", "items": {"type": "string"}}
        else:
            schema = {"type": self.kind}
        if draw.random() < 0.85:
            schema["description"] = self.description
        return schema


OPENINGS = (
    "Please",
    "Can you",
    "Could you",
    "I need to",
    "Help me",
    "I would like to",
    "Hey,",
    "Now",
    "We have to",
    "Go ahead and",
)

_P = Parameter
_PLACES = ("Lisbon", "Nairobi", "Osaka", "Quito", "Oslo", "Denver, CO", "Leeds", "Pune", "Perth")
_PEOPLE = ("Maria Lopez", "Kenji Sato", "Amara Okafor", "Tom Becker", "Lena Fischer", "Omar Haddad")
PARAMETERS: dict[str, Parameter] = {
    "place": _P("string", "Where, as a town or a region.", "in {}", _PLACES),
    "origin": _P("string", "Where it begins.", "from {}", _PLACES),
    "target_place": _P("string", "Where it ends.", "to {}", _PLACES),
    "person": _P("string", "The full name of the person.", "for {}", _PEOPLE),
    "owner": _P("string", "Who owns it.", "owned by {}", _PEOPLE),
    "email_address": _P(
        "string",
        "An e-mail address.",
        "with the address {}",
        ("maria@uni.example", "kenji.sato@mail.example", "office@becker.example"),
    ),
    "day": _P(
        "string",
        "The day, as YYYY-MM-DD.",
        "on {}",
        ("2024-03-18", "2023-11-02", "2025-07-30", "2022-01-15", "2024-12-24"),
    ),
    "until": _P(
        "string",
        "The last day, as YYYY-MM-DD.",
        "until {}",
        ("2024-04-01", "2023-12-31", "2025-08-15", "2022-02-28"),
    ),
    "hour": _P(
        "string", "The time of day, 24 hours.", "at {}", ("09:30", "14:00", "18:45", "07:15")
    ),
    "how_many": _P("integer", "How many of them.", "{} of them", (1, 40)),
    "page_number": _P("integer", "Which page of the results.", "page {}", (1, 12)),
    "most_results": _P("integer", "The most results to return.", "at most {} results", (5, 100)),
    "year_of": _P("integer", "The year.", "of the year {}", (1950, 2025)),
    "amount_of_money": _P("number", "The amount, in the given currency.", "for {}", (5, 5000)),
    "currency_code": _P("enum", "A currency.", "in {}", ("EUR", "USD", "GBP", "JPY", "INR")),
    "share": _P("number", "A share between 0 and 1.", "with a share of {}", (0, 1)),
    "weight_kg": _P("number", "The weight in kilograms.", "weighing {} kg", (0, 120)),
    "height_cm": _P("number", "The height in centimetres.", "{} cm high", (20, 210)),
    "distance_km": _P("number", "A distance in kilometres.", "within {} km", (1, 300)),
    "temperature_c": _P("number", "Degrees Celsius.", "at {} degrees", (-20, 90)),
    "minutes": _P("integer", "How long, in minutes.", "for {} minutes", (5, 240)),
    "priority_level": _P(
        "enum", "How urgent it is.", "with {} priority", ("low", "normal", "high")
    ),
    "state_of": _P("enum", "The state.", "that are {}", ("open", "closed", "pending", "archived")),
    "order_by": _P("enum", "What to sort by.", "sorted by {}", ("name", "date", "size", "score")),
    "direction": _P("enum", "Which way.", "going {}", ("up", "down", "left", "right")),
    "colour": _P("enum", "A colour.", "in {}", ("red", "green", "blue", "black", "white")),
    "size_class": _P("enum", "The size.", "in size {}", ("small", "medium", "large")),
    "file_kind": _P("enum", "The file format.", "as {}", ("pdf", "csv", "json", "xml", "txt")),
    "language_code": _P("enum", "The language.", "in the language {}", ("en", "de", "fr", "es")),
    "verbose_output": _P("boolean", "Whether to say more.", "with all details{}", ()),
    "only_new": _P("boolean", "Whether to leave out old ones.", "only new ones{}", ()),
    "notify": _P("boolean", "Whether to send a message about it.", "and tell everybody{}", ()),
    "file_path": _P(
        "string",
        "The path of the file.",
        "in the file {}",
        ("/home/maria/report.txt", "data/2023/sales.csv", "src/main.py", "notes/todo.md"),
    ),
    "folder": _P("string", "The folder.", "in the folder {}", ("backups", "src/lib", "/var/log")),
    "branch_name": _P("string", "A branch.", "on the branch {}", ("main", "fix-login", "v2-docs")),
    "repository_name": _P(
        "string",
        "The repository, owner/name.",
        "in {}",
        ("acme/webshop", "lena/solver", "orbit/telemetry"),
    ),
    "search_text": _P(
        "string",
        "What to look for.",
        'matching "{}"',
        ("late invoices", "blue ceramic mugs", "quarterly results", "how to prune roses"),
    ),
    "subject_line": _P(
        "string",
        "The subject.",
        'with the subject "{}"',
        ("Lunch on Friday", "Your order has shipped", "Minutes of the meeting"),
    ),
    "message_text": _P(
        "string",
        "The text of the message.",
        'saying "{}"',
        ("I will be late", "The parts have arrived", "Thanks for your help", "See you at noon"),
    ),
    "title_text": _P(
        "string",
        "A title.",
        'called "{}"',
        ("The Silent River", "Plan for spring", "Winter light", "Budget draft"),
    ),
    "tags": _P(
        "array", "Labels.", "with the labels {}", ("urgent", "home", "travel", "work", "gift")
    ),
    "items": _P("array", "The things.", "with {}", ("apples", "bread", "olive oil", "rice", "tea")),
    "members": _P("array", "Names of people.", "together with {}", _PEOPLE),
    "columns": _P(
        "array", "Names of columns.", "with the columns {}", ("id", "price", "region", "sum")
    ),
    "product_code": _P(
        "string",
        "The code of the product.",
        "with the code {}",
        ("KX-2041", "B00-77", "ZR9915", "AL-5"),
    ),
    "account_number": _P(
        "string", "An account.", "on the account {}", ("4471-220", "DE-0099", "88120034", "A-17")
    ),
    "ticket_id": _P("integer", "The number of the ticket.", "number {}", (100, 99999)),
    "patient_id": _P(
        "string", "The patient's number.", "for patient {}", ("P-1002", "P-88", "P-3471")
    ),
    "dose_mg": _P("number", "The dose in milligrams.", "with {} mg", (1, 500)),
    "symptoms": _P(
        "array",
        "What the patient feels.",
        "with {}",
        ("fever", "cough", "headache", "nausea", "fatigue"),
    ),
    "ingredient": _P("string", "The main ingredient.", "with {}", ("lentils", "salmon", "pumpkin")),
    "diet": _P("enum", "A diet.", "that is {}", ("vegan", "vegetarian", "gluten-free", "any")),
    "servings": _P("integer", "For how many people.", "for {} people", (1, 12)),
    "genre_name": _P(
        "string", "The genre.", "of the genre {}", ("jazz", "science fiction", "folk")
    ),
    "artist_name": _P("string", "Who made it.", "by {}", ("Nina Simone", "Monet", "Radiohead")),
    "team": _P(
        "string", "A team.", "for the {}", ("Harbour Hawks", "River City", "Northern Stars")
    ),
    "season_year": _P("integer", "The season.", "in the season {}", (1990, 2025)),
    "device_name": _P(
        "string", "The device.", "on {}", ("hallway lamp", "thermostat", "garage door")
    ),
    "brightness": _P("integer", "Per cent.", "at {} per cent", (0, 100)),
    "expression": _P(
        "string", "A formula.", "of {}", ("x**2 + 3*x", "sin(x)/x", "2*a - b", "log(y)")
    ),
    "lower_bound": _P("number", "The lower end.", "from {}", (-10, 10)),
    "upper_bound": _P("number", "The upper end.", "to {}", (10, 200)),
    "matrix_size": _P("integer", "Rows of the square matrix.", "of size {}", (2, 9)),
    "chemical": _P("string", "A substance.", "of {}", ("sodium chloride", "ethanol", "caffeine")),
    "volume_ml": _P("number", "Millilitres.", "in {} ml", (1, 900)),
    "species": _P("string", "A species.", "of {}", ("red fox", "silver birch", "honey bee")),
    "planet_name": _P("string", "A planet or moon.", "on {}", ("Mars", "Titan", "Venus", "Europa")),
    "speed_kmh": _P("number", "Kilometres per hour.", "at {} km/h", (5, 180)),
    "plate": _P(
        "string", "The number plate.", "with the plate {}", ("KA-77-XP", "LND 482", "QF09 ZTR")
    ),
    "room": _P(
        "string", "The room.", "in the {}", ("kitchen", "meeting room 3", "attic", "library")
    ),
    "nights": _P("integer", "Nights.", "for {} nights", (1, 14)),
    "rating_min": _P("number", "The lowest rating.", "rated at least {}", (1, 5)),
    "stock_symbol": _P("string", "A ticker symbol.", "of {}", ("NVTK", "ORBX", "LUMA", "GRNE")),
    "interest_percent": _P("number", "Per cent a year.", "at {} per cent", (0, 12)),
    "term_months": _P("integer", "Months.", "over {} months", (6, 360)),
    "query_text": _P(
        "string",
        "A statement in SQL.",
        "with {}",
        ("SELECT * FROM users", "SELECT name, price FROM goods WHERE price > 10"),
    ),
    "host": _P("string", "A host name.", "on {}", ("db1.example", "cache.local", "10.0.0.12")),
    "port": _P("integer", "A port.", "at port {}", (80, 9999)),
    "web_address": _P(
        "string", "A URL.", "at {}", ("https://shop.example/items", "http://docs.example/v2/start")
    ),
}


def _domain(verbs: str, nouns: str, parameters: str) -> dict[str, list[str]]:
    return {
        "verbs": verbs.split(),
        "nouns": [noun.strip() for noun in nouns.split(",")],
        "parameters": parameters.split(),
    }


DOMAINS: dict[str, dict[str, list[str]]] = {
    "general": _domain(
        "list find show",
        "record, entry, overview, summary",
        "how_many most_results order_by verbose_output day tags notify",
    ),
    "calendar": _domain(
        "plan move cancel book",
        "appointment, team meeting, reminder, shift",
        "day hour minutes person members room title_text until",
    ),
    "mail": _domain(
        "send draft forward archive",
        "letter, newsletter, mail thread, reply",
        "email_address subject_line message_text priority_level person",
    ),
    "files": _domain(
        "read write copy compress rename",
        "file, folder tree, backup, log file",
        "file_path folder file_kind only_new columns",
    ),
    "code": _domain(
        "open merge review tag",
        "pull request, branch, release, code owner",
        "repository_name branch_name title_text state_of ticket_id owner",
    ),
    "shop": _domain(
        "order return price reserve",
        "product, basket, gift card, spare part",
        "product_code how_many colour size_class amount_of_money currency_code items",
    ),
    "bank": _domain(
        "transfer freeze estimate repay",
        "payment, savings plan, loan, account balance",
        "account_number amount_of_money currency_code interest_percent term_months person",
    ),
    "stocks": _domain(
        "watch buy compare chart",
        "share, fund, dividend history, portfolio",
        "stock_symbol how_many day until amount_of_money currency_code",
    ),
    "clinic": _domain(
        "register diagnose prescribe",
        "patient visit, medicine, blood test, symptom report",
        "patient_id dose_mg symptoms day weight_kg height_cm",
    ),
    "kitchen": _domain(
        "cook suggest scale",
        "recipe, menu, shopping list, leftover dish",
        "ingredient diet servings minutes items temperature_c",
    ),
    "music": _domain(
        "play queue rate recommend",
        "song, playlist, concert ticket, record label",
        "artist_name genre_name title_text year_of how_many rating_min",
    ),
    "sports": _domain(
        "track rank schedule",
        "match, league table, player transfer, training session",
        "team season_year place day person minutes",
    ),
    "home": _domain(
        "switch dim set lock",
        "light, heating, blind, alarm system",
        "device_name brightness room temperature_c hour colour",
    ),
    "travel": _domain(
        "search reserve plan",
        "train ride, guest house, ferry crossing, city tour",
        "origin target_place day nights rating_min how_many currency_code",
    ),
    "roads": _domain(
        "route measure report",
        "detour, parking space, traffic jam, charging stop",
        "origin target_place distance_km speed_kmh plate hour",
    ),
    "weather": _domain(
        "predict log warn",
        "storm, pollen level, tide, frost risk",
        "place day hour temperature_c distance_km language_code",
    ),
    "algebra": _domain(
        "integrate solve plot differentiate",
        "equation, curve, polynomial, series",
        "expression lower_bound upper_bound matrix_size share",
    ),
    "laboratory": _domain(
        "mix titrate weigh",
        "solution, sample, reagent, crystal",
        "chemical volume_ml weight_kg temperature_c minutes",
    ),
    "nature": _domain(
        "observe count protect",
        "habitat, bird nest, tree, herd",
        "species place how_many day height_cm",
    ),
    "space": _domain(
        "simulate land orbit",
        "probe, rover mission, moon base, telescope image",
        "planet_name distance_km day speed_kmh how_many",
    ),
    "database": _domain(
        "query export index",
        "table, view, customer record, audit trail",
        "query_text columns host port file_kind most_results",
    ),
    "network": _domain(
        "ping restart trace",
        "server, router, web service, certificate",
        "host port web_address minutes verbose_output",
    ),
    "support": _domain(
        "escalate answer close assign",
        "ticket, complaint, refund request, chat session",
        "ticket_id priority_level state_of person message_text",
    ),
    "library": _domain(
        "lend renew catalogue",
        "book, magazine, reading list, rare print",
        "title_text artist_name year_of genre_name language_code until",
    ),
    "game": _domain(
        "move spawn score",
        "piece, level, puzzle, tournament round",
        "direction how_many title_text members colour",
    ),
    "web": _domain(
        "crawl search translate",
        "page, article, forum post, image",
        "web_address search_text language_code page_number most_results",
    ),
}
