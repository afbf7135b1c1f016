"""Topics and templates of our own training prompts."""

from __future__ import annotations

TEMPLATES = (
    "What is {}?",
    "Why does {} matter?",
    "Explain {} to a ten-year-old.",
    "Explain how {} works, step by step.",
    "Write a short poem about {}.",
    "Write a short story in which {} plays a part.",
    "Give me five tips about {}.",
    "What are common misconceptions about {}?",
    "Compare {} with something similar.",
    "Write a Python function related to {} and explain it.",
    "Write an introduction for an article about {}.",
    "Make a list of questions for a quiz about {}.",
    "What should a beginner know about {}?",
    "Describe a day in the life of someone who works with {}.",
    "Draft a polite email that asks an expert about {}.",
    "Tell me something surprising about {}.",
)
TOPICS = (
    "gravity", "glaciers", "the Moon", "earthquakes", "rainbows", "magnets", "honey bees", "whales",
    "bread", "cheese", "chocolate", "tea", "olive oil", "spices", "fermentation", "recycling",
    "bicycles", "trains", "aeroplanes", "ships", "lighthouses", "skyscrapers", "tunnels", "dams",
    "democracy", "money", "taxes", "insurance", "trade", "the stock market", "libraries", "museums",
    "the printing press", "the steam engine", "electricity", "batteries", "solar power", "wind",
    "computers", "the internet", "databases", "encryption", "sorting algorithms", "recursion",
    "graphs", "hash tables", "regular expressions", "unit tests", "version control", "compilers",
    "machine learning", "robots", "video games", "photography", "painting", "sculpture", "dance",
    "the piano", "the violin", "folk songs", "poetry", "novels", "theatre", "cinema", "newspapers",
    "football", "tennis", "swimming", "hiking", "climbing", "yoga", "sleep", "breakfast",
    "vitamins", "the immune system", "the brain", "memory", "habits", "friendship", "leadership",
    "teaching", "homework", "exams", "languages", "grammar", "maps and globes", "time zones",
    "calendars", "clocks", "triangles", "fractions", "probability", "averages", "infinity", "zero",
    "ancient Egypt", "ancient Greece", "the Vikings", "the Silk Road", "the Renaissance", "castles",
    "pirates", "explorers", "deserts", "rainforests", "coral reefs", "rivers", "islands", "forests",
    "wolves", "owls", "ants", "frogs", "dinosaurs", "horses", "cats", "dogs", "gardens",
    "weather forecasts", "climate", "hurricanes", "snow", "stars", "black holes", "Mars", "comets",
    "atoms", "acids", "metals", "glass", "plastic", "paper", "cotton", "wool", "shoes", "hats",
)  # fmt: skip
