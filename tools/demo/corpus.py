"""Builds the demo corpus: synthetic stories, fables, questions and answers, and (optionally) the King James Bible.

Run:  python corpus.py OUT_DIR [--bible bible.txt] [--docs 60000] [--seed 1]
Writes OUT_DIR/text.txt; documents are separated by a line holding only <|endoftext|>. train.py calls docs() and bible().
"""

import argparse, os, random, re
from facts import *

BOYS = "Tom Ben Sam Max Leo Finn Jack Noah Oscar Hugo Peter Adam Luke Paul Henry".split()
GIRLS = "Anna Lily Mia Emma Rosa Clara Ella Nora Lucy Sara Ruby Alice Kate Jane Eva".split()
PLACES = [
    "the park",
    "the forest",
    "the beach",
    "the garden",
    "the farm",
    "the market",
    "the river",
    "the old mill",
    "the hill",
    "the village",
    "the lake",
    "the meadow",
]
NEAR = [
    "under a bush",
    "behind a big tree",
    "beside the old wall",
    "near the water",
    "under a wooden bench",
    "in the tall grass",
    "on top of a rock",
    "inside a hollow log",
]
TOYS = [
    "ball",
    "kite",
    "doll",
    "boat",
    "drum",
    "teddy",
    "book",
    "hat",
    "scarf",
    "key",
    "basket",
    "lantern",
    "bell",
    "whistle",
    "ring",
    "coat",
]
COLS = "red blue green yellow white brown purple orange golden silver".split()
FOODS = ["apple", "cake", "pie", "sandwich", "bun", "pear", "biscuit", "pancake", "bowl of soup", "loaf of bread"]
ADJ = "little small kind brave clever shy merry curious gentle quiet lazy proud".split()
WEATHER = [
    ("sunny", "The sun was shining and the birds were singing."),
    ("rainy", "The rain fell softly on the roof."),
    ("windy", "The wind blew the leaves around."),
    ("snowy", "White snow covered the ground."),
    ("cloudy", "Grey clouds moved slowly across the sky."),
    ("warm", "The air was warm and smelled of flowers."),
]
HELPERS = [a for a in ANIMALS if ANIMALS[a][7] <= 6]
MORAL = {
    "share": ["Sharing makes everyone happy.", "A thing shared is twice as sweet."],
    "truth": ["It is always better to tell the truth.", "An honest word is worth more than gold."],
    "patience": ["Good things come to those who wait.", "Slow and steady work brings good things."],
    "help": ["A good friend helps when help is needed.", "Kindness is never wasted."],
    "brave": ["Being brave means trying even when you are afraid.", "Fear grows small when friends are near."],
    "proud": ["Pride comes before a fall.", "It is foolish to boast."],
    "work": ["Hard work always pays.", "Many hands make light work."],
    "clever": ["A clever mind is better than a strong arm.", "Think first and act later."],
}


def an(w):
    return ("an " if w[0] in "aeiou" else "a ") + w


def cap(s):
    return s[0].upper() + s[1:]


PREP = {
    "the hill": "on",
    "the farm": "on",
    "the beach": "on",
    "the river": "by",
    "the lake": "by",
    "the market": "at",
    "the old mill": "near",
}


def at(p):
    return f"{PREP.get(p, 'in')} {p}"


class Story:
    def __init__(s, r, want=None, place=None):
        s.r = r
        c = r.choice
        s.kind = want if want in ANIMALS else None
        if want and not s.kind and want in BOYS + GIRLS:
            s.name = want
            s.animal = None
        elif s.kind or r.random() < 0.45:
            s.animal = s.kind or c(HELPERS)
            s.name = None
        else:
            s.animal = None
            s.name = c(BOYS + GIRLS)
        if s.animal:
            s.he, s.him, s.his = c([("he", "him", "his"), ("she", "her", "her")])
            s.subj = "the " + s.animal
            s.full = f"{c(ADJ)} {s.animal}"
        else:
            s.he, s.him, s.his = ("he", "him", "his") if s.name in BOYS else ("she", "her", "her")
            s.subj = s.name
            s.full = f"{c(ADJ)} {'boy' if s.he == 'he' else 'girl'} named {s.name}"
        s.place = place or c(PLACES)
        s.weather = c(WEATHER)
        f = c([a for a in HELPERS if a != s.animal])
        s.friend = "the " + f
        s.fa = f
        s.toy = c(TOYS)
        s.col = c(COLS)
        s.obj = f"{s.col} {s.toy}"
        s.food = c(FOODS)
        s.near = c(NEAR)

    def S(s):
        return cap(s.subj) if s.r.random() < 0.5 else cap(s.he)

    def open(s):
        r, c = s.r, s.r.choice
        if getattr(s, "again", False):
            s.again = False
            return c(
                [
                    f"The next day, {s.subj} went to {s.place}. {s.weather[1]}",
                    f"A week later, {s.subj} was walking {at(s.place)}. {s.weather[1]}",
                ]
            )
        home = (
            ANIMALS[s.animal][2]
            if s.animal
            else c(
                [
                    "a small house",
                    "a village",
                    "a little town",
                    "a cottage by the sea",
                    "a farmhouse",
                    "a house on the hill",
                ]
            )
        )
        a = c(
            [
                f"Once upon a time, there was {an(s.full)}.",
                f"There once was {an(s.full)}.",
                f"Long ago, {an(s.full)} lived in {home}.",
                f"Once upon a time, {an(s.full)} lived in {home}.",
                f"In a land far away, there lived {an(s.full)}.",
            ]
        )
        b = c(
            [
                f"One {s.weather[0]} day, {s.subj} went to {s.place}. {s.weather[1]}",
                f"It was a {s.weather[0]} morning. {s.weather[1]} {cap(s.subj)} walked to {s.place}.",
                f"Every day {s.he} played {at(s.place)}. {s.weather[1]}",
                f"One {s.weather[0]} afternoon, {s.subj} was walking {at(s.place)}.",
            ]
        )
        return a + " " + b

    def say(s, who, txt):
        v = s.r.choice(
            ["said", "said", "asked" if txt.endswith("?") else "said", "cried" if txt.endswith("!") else "said"]
        )
        t = txt[:-1] + "," if txt.endswith(".") else txt
        return s.r.choice([f'"{t}" {v} {who}.', f'{cap(who)} {v}, "{txt}"'])

    def end(s, m):
        c = s.r.choice
        return (
            c(
                [
                    f"From that day on, {s.subj} and {s.friend} were good friends.",
                    f"{cap(s.subj)} was very happy and went home with a smile.",
                    f"That night, {s.subj} slept well and dreamed of {s.place}.",
                    "And they all lived happily ever after.",
                    f"They laughed and played until the sun went down.",
                ]
            )
            + (" " + c(MORAL[m]) if s.r.random() < 0.7 else "")
            + c(["", " The end."])
        )


def lost(s):
    c = s.r.choice
    return [
        s.open(),
        f"{s.S()} had {an(s.obj)}. It was {s.his} favourite {s.toy}.",
        c(
            [
                f"But when {s.he} looked down, the {s.toy} was gone!",
                f"Suddenly {s.he} saw that the {s.toy} was not there.",
            ]
        ),
        s.say(s.subj, c([f"Oh no! Where is my {s.toy}?", f"I have lost my {s.obj}!"])),
        f"{cap(s.he)} looked {c(NEAR)}, but it was not there. {cap(s.he)} began to cry.",
        f"Just then, {an(s.fa)} came by.",
        s.say(s.friend, c(["Why are you crying?", "What is the matter?", "Can I help you?"])),
        s.say(s.subj, f"I cannot find my {s.toy}."),
        c(
            [
                f"Together they looked everywhere. At last {s.friend} found the {s.obj} {s.near}.",
                f"They searched all over {s.place}. Then {s.friend} saw something {s.col} {s.near}. It was the {s.toy}!",
            ]
        ),
        s.say(s.subj, c(["Thank you! You are a true friend.", "Thank you so much!"])),
        s.end("help"),
    ]


def share(s):
    c = s.r.choice
    return [
        s.open(),
        f"{cap(s.he)} had {an(s.food)} for lunch. It smelled very good.",
        f"{cap(s.friend)} came near and looked at the {s.food}.",
        s.say(s.friend, c(["I am so hungry.", "I have not eaten all day."])),
        c([f"At first {s.subj} wanted to keep it all.", f"{cap(s.subj)} thought for a moment."]),
        f"Then {s.he} saw that {s.friend} looked very sad.",
        s.say(s.subj, c(["You can have half of it.", "Come and eat with me."])),
        f"So they sat down {s.near} and ate the {s.food} together.",
        s.say(s.friend, c(["That was the best meal ever!", "Thank you. You are very kind."])),
        c(
            [
                f"The next day, {s.friend} brought {an(c(FOODS))} to share.",
                f"Later, {s.friend} showed {s.him} a secret path.",
            ]
        ),
        s.end("share"),
    ]


def fear(s):
    c = s.r.choice
    f, h = c(
        [
            ("the dark", "light a candle"),
            ("deep water", "start where it is shallow"),
            ("loud thunder", "count the seconds after each flash"),
            ("high places", "look at the sky and not at the ground"),
        ]
    )
    return [
        s.open(),
        f"But there was one problem. {cap(s.subj)} was afraid of {f}.",
        c([f"All the others laughed at {s.him}.", f"{cap(s.he)} did not want anyone to know."]),
        f"One day, {s.he} met {an(s.fa)}.",
        s.say(s.friend, f"Why do you look so worried?"),
        s.say(s.subj, f"I am afraid of {f}."),
        s.say(s.friend, f"I was afraid too. You must {h}."),
        f"So {s.subj} took a deep breath and tried. "
        + c(["It was not easy, but it worked.", "At first it was hard. Then it was easy."]),
        s.say(s.subj, c(["I did it!", "I am not afraid any more!"])),
        s.end("brave"),
    ]


def plant(s):
    c = s.r.choice
    p = c(["a flower", "an apple tree", "a pumpkin", "a bean plant", "a sunflower"])
    return [
        s.open(),
        f"There {s.he} found a tiny seed {s.near}.",
        s.say(s.subj, c(["I will plant this seed.", "What will grow from this?"])),
        f"{cap(s.he)} dug a hole, put the seed in the ground and gave it water.",
        c(["The next day nothing had happened.", "For many days, nothing grew."]),
        s.say(s.subj, "Why does it not grow?"),
        s.say(s.friend, c(["You must wait. Seeds need time.", "Give it water and sun, and be patient."])),
        f"So {s.subj} gave it water every day and waited.",
        f"One {c(['morning', 'day'])}, a small green leaf came up. Week after week it grew. At last it was {p}!",
        f"{cap(s.subj)} danced with joy.",
        s.end("patience"),
    ]


def truth(s):
    c = s.r.choice
    v = c(["vase", "window", "cup", "lamp", "plate"])
    g = c(["mother", "father", "grandmother", "grandfather"])
    return [
        s.open(),
        f"{cap(s.he)} was playing with {an(s.obj)} when it hit the {v}. Crash! The {v} broke.",
        f"{cap(s.subj)} was afraid. "
        + c([f"{cap(s.he)} hid the pieces {s.near}.", f"{cap(s.he)} wanted to run away."]),
        f"Then {s.his} {g} came.",
        s.say(f"{s.his} {g}", f"Who broke the {v}?"),
        c([f"{cap(s.subj)} wanted to say that {s.friend} did it.", f"{cap(s.subj)} looked at the ground."]),
        "But that would be a lie.",
        s.say(s.subj, f"I broke the {v}. I am very sorry."),
        s.say(f"{s.his} {g}", c(["Thank you for telling the truth.", "I am proud of you because you were honest."])),
        f"They cleaned up the pieces together.",
        s.end("truth"),
    ]


def race(s):
    c = s.r.choice
    w = s.subj if s.r.random() < 0.5 else s.friend
    l = s.friend if w == s.subj else s.subj
    return [
        s.open(),
        f"There {s.he} met {an(s.fa)} who liked to boast.",
        s.say(l, "I am faster than you!"),
        s.say(w, c(["Let us have a race to the old oak tree.", "Then let us run to the river and back."])),
        "One, two, three, go!",
        f"{cap(l)} ran very fast and was soon far ahead. Then {l} "
        + c(["stopped to rest under a tree and fell asleep.", "stopped to eat some berries.", "stopped to laugh."]),
        f"But {w} did not stop. {cap(w)} went on and on, step by step.",
        f"When {l} looked up, it was too late. {cap(w)} had won the race!",
        s.say(l, c(["You were right. I should not boast.", "Well done. You won."])),
        s.end("proud"),
    ]


def trouble(s):
    c = s.r.choice
    t, h = c(
        [
            ("stuck in a net", "bit the strings one by one"),
            ("stuck in the mud", "pulled with a long rope"),
            ("caught in a thorn bush", "bent the branches away"),
            ("in a deep hole", "let down a long branch"),
        ]
    )
    return [
        s.open(),
        f"Then {s.he} heard a small voice.",
        s.say("the voice", c(["Help! Please help me!", "Is anybody there? Help!"])),
        f"It was {an(s.fa)}. {cap(s.friend)} was {t}.",
        s.say(s.subj, c(["Do not worry. I will help you.", "Stay still! I am coming."])),
        f"{cap(s.subj)} {h}. " + c(["It took a long time.", "It was hard work."]) + f" At last {s.friend} was free.",
        s.say(s.friend, c(["You saved me! How can I thank you?", "Thank you! I will never forget this."])),
        c(
            [
                f"Some days later, {s.subj} was lost {at(s.place)}. {cap(s.friend)} heard {s.him} and showed {s.him} the way home.",
                f"After that, {s.friend} always helped {s.him} too.",
            ]
        ),
        s.end("help"),
    ]


def make(s):
    c = s.r.choice
    m, st = c(
        [
            ("a cake", ["mixed flour, eggs and milk", "put it in the hot oven", "waited until it was brown"]),
            ("a kite", ["found some paper and two sticks", "tied them with string", "made a long tail"]),
            ("a boat", ["took some planks of wood", "nailed them together", "made a sail from an old sheet"]),
            ("a snowman", ["rolled a big ball of snow", "put a small ball on top", "used a carrot for the nose"]),
            ("a tree house", ["carried wood up the tree", "built a floor and a roof", "hung a rope ladder"]),
        ]
    )
    return [
        s.open(),
        s.say(s.subj, c([f"I want to make {m}.", f"Today I will make {m}."])),
        s.say(s.friend, c(["May I help you?", "Let us do it together."])),
        f"First they {st[0]}. Then they {st[1]}. Last of all, they {st[2]}.",
        c(["Soon it was ready.", "It was hard work, but they did not give up.", "It took the whole day."]),
        s.say(s.friend, c([f"This is the best thing we have ever made!", "It is beautiful!"])),
        s.end("work"),
    ]


def gift(s):
    c = s.r.choice
    return [
        s.open(),
        f"It was the birthday of {s.friend}, but {s.subj} had no gift.",
        s.say(s.subj, "What can I give?"),
        f"{cap(s.he)} looked {c(NEAR)} and found {an(s.obj)}. "
        + c(["It was old and dirty.", "It was covered with dust."]),
        f"So {s.he} washed it and tied a ribbon around it.",
        f"That evening, {s.he} gave the {s.toy} to {s.friend}.",
        s.say(s.friend, c([f"{cap(an(s.obj))}! I love it!", "This is the best gift of all!"])),
        f"They ate {an(s.food)} and sang songs.",
        s.end("share"),
    ]


def trick(s):
    c = s.r.choice
    b = c(["wolf", "bear", "tiger", "lion", "crocodile"])
    if b == s.animal:
        b = "snake"
    return [
        s.open(),
        f"Suddenly, a big {b} jumped out.",
        s.say(f"the {b}", c(["I am going to eat you!", "You will be my dinner!"])),
        f"{cap(s.subj)} was afraid, but {s.he} thought quickly.",
        s.say(
            s.subj,
            c(
                [
                    f"I am too small. Behind you there is a much bigger meal.",
                    "Wait! There is another " + b + " in the well, and he says he is stronger than you.",
                ]
            ),
        ),
        c([f"The {b} turned around to look.", f"The {b} was greedy and turned around."]),
        f"At once {s.subj} " + c(["ran away as fast as the wind.", "climbed up a tall tree.", f"hid {s.near}."]),
        f"The {b} went away hungry.",
        s.end("clever"),
    ]


PLOTS = [lost, share, fear, plant, truth, race, trouble, make, gift, trick]

ABOUT = {
    lost: "who lost {t}",
    share: "who shared a meal",
    fear: "who was afraid",
    plant: "who planted a seed",
    truth: "who told the truth",
    race: "who ran a race",
    trouble: "who helped a friend",
    make: "who made something",
    gift: "who gave a gift",
    trick: "who was very clever",
}


def story(r):
    want = r.choice(list(HELPERS) + BOYS + GIRLS)
    place = r.choice(PLACES)
    s = Story(r, want, place)
    plot = r.choice(PLOTS)
    body = " ".join(plot(s))
    if r.random() < 0.2:
        t = Story(r, want, r.choice(PLACES))
        t.again, t.subj, t.he, t.him, t.his, t.animal, t.name = True, s.subj, s.he, s.him, s.his, s.animal, s.name
        if t.friend != s.subj:
            body = body.replace(" The end.", "") + "\n" + " ".join(r.choice(PLOTS)(t))
    if r.random() < 0.3:
        body = body.replace("said,", "said softly,", 1)
    w = an(want) if want in ANIMALS else want
    c = r.choice
    if r.random() < 0.45:
        more = c(
            ["", "", f" {at(place)}", " " + ABOUT[plot].format(t=an(s.toy)), " " + ABOUT[plot].format(t=an(s.toy))]
        )
        if c(range(12)) == 0:
            return f"Question: {c(['Tell me a story.', 'Please tell me a story.', 'Tell me another story.'])}\nAnswer: {body}"
        return f"Question: {c(['Tell me a story about', 'Please tell me a story about', 'Write a short story about'])} {w}{more}.\nAnswer: {body}"
    return body


def qa_items(r):
    c = r.choice
    k = r.randrange(24)
    if k == 0:
        n, p, q = c(CAPITALS)
        x = r.randrange(3)
        return [
            (f"What is the capital of {n}?", f"The capital of {n} is {p}."),
            (f"{p} is the capital of which country?", f"{p} is the capital of {n}."),
            (f"On which continent is {n}?", f"{n} is in {q}."),
        ][x]
    if k in (1, 2):
        a, b = r.randrange(21), r.randrange(21)
        x = r.randrange(3)
        if x == 0:
            return (f"What is {a} + {b}?", f"{a} + {b} = {a + b}.")
        if x == 1:
            a, b = max(a, b), min(a, b)
            return (f"What is {a} - {b}?", f"{a} - {b} = {a - b}.")
        a, b = a % 11, b % 11
        return (f"What is {a} x {b}?", f"{a} x {b} = {a * b}.")
    if k == 3:
        i = r.randrange(7)
        return c(
            [
                (f"What day comes after {DAYS[i]}?", f"{DAYS[(i + 1) % 7]} comes after {DAYS[i]}."),
                (f"What day comes before {DAYS[i]}?", f"{DAYS[i - 1]} comes before {DAYS[i]}."),
                ("What are the days of the week?", "The days of the week are " + ", ".join(DAYS[:-1]) + " and Sunday."),
            ]
        )
    if k == 4:
        i = r.randrange(12)
        return c(
            [
                (f"What month comes after {MONTHS[i]}?", f"{MONTHS[(i + 1) % 12]} comes after {MONTHS[i]}."),
                (f"What month comes before {MONTHS[i]}?", f"{MONTHS[i - 1]} comes before {MONTHS[i]}."),
                (f"In which season is {MONTHS[i]}?", f"{MONTHS[i]} is in {SEASONS[i]}."),
                (
                    "What are the months of the year?",
                    "The months of the year are " + ", ".join(MONTHS[:-1]) + " and December.",
                ),
            ]
        )
    if k in (5, 6, 7):
        a = c(list(ANIMALS))
        b, so, h, f, l, co, g, z = ANIMALS[a]
        o = c([x for x in ANIMALS if ANIMALS[x][7] != z])
        lw = f"{NUMW[l]} legs" if l else "no legs"
        big, sm = (a, o) if z > ANIMALS[o][7] else (o, a)
        return c(
            [
                (f"What is a baby {a} called?", f"A baby {a} is called {an(b)}."),
                (
                    f"What sound does {an(a)} make?",
                    f"{cap(an(a))} makes {'no sound' if so.startswith('nothing') else 'the sound ' + so}.",
                ),
                (f"Where does {an(a)} live?", f"{cap(an(a))} lives in {h}."),
                (f"What does {an(a)} eat?", f"{cap(an(a))} eats {f}."),
                (f"How many legs does {an(a)} have?", f"{cap(an(a))} has {lw}."),
                (f"What colour is {an(a)}?", f"{cap(an(a))} is often {co}."),
                (
                    f"Is {an(a)} a mammal?",
                    f"Yes, {an(a)} is a mammal." if g == "mammal" else f"No, {an(a)} is {an(g)}.",
                ),
                (f"Which is bigger, {an(a)} or {an(o)}?", f"{cap(an(big))} is bigger than {an(sm)}."),
                (f"Which is smaller, {an(a)} or {an(o)}?", f"{cap(an(sm))} is smaller than {an(big)}."),
            ]
        )
    if k in (8, 9):
        a, b = c(OPPOSITES)
        return (
            (f"What is the opposite of {a}?", f"The opposite of {a} is {b}.")
            if (r.random() < 0.6 or a in ("light", "short", "right", "old")) or b in ("light", "short", "right", "old")
            else (f"What is the opposite of {b}?", f"The opposite of {b} is {a}.")
        )
    if k == 10:
        a, b = c(PAST)
        return (f"What is the past tense of {a}?", f"The past tense of {a} is {b}.")
    if k == 11:
        a, b = c(PLURALS)
        return (f"What is the plural of {a}?", f"The plural of {a} is {b}.")
    if k == 12:
        a, b = c(COLOURS)
        w = (
            f"the {a}"
            if a in ("sky", "sun", "sea", "night")
            else a
            if a in ("grass", "snow", "coal", "blood", "milk", "chocolate", "mud")
            else an(a)
        )
        return (f"What colour is {w}?", f"{cap(w)} is {b}.")
    if k in (13, 14):
        t, u, m = c(USES)
        p = t in ("scissors", "boots", "soap")
        w = t if p else an(t)
        return c(
            [
                (f"What do you use {w} for?", f"You use {w} to {u}."),
                (f"What do you need to {u}?", f"You need {w} to {u}."),
            ]
        )
    if k == 15:
        g = c(list(KINDS))
        i = c(KINDS[g])
        o = c([x for x in KINDS if x != g])
        x = r.sample(KINDS[g], 3)
        return c(
            [
                (f"Is {i} {an(g)} or {an(o)}?", f"{cap(i)} is {an(g)}."),
                (f"What kind of thing is {i}?", f"{cap(i)} is {an(g)}."),
                (f"Name three {g}s.", f"Three {g}s are {x[0]}, {x[1]} and {x[2]}."),
            ]
        )
    if k == 16:
        a, n = c(SIDES)
        return (f"How many sides does {an(a)} have?", f"{cap(an(a))} has {NUMW[n]} sides.")
    if k == 17:
        i = r.randrange(8)
        return c(
            [
                ("What are the planets?", "The planets are " + ", ".join(PLANETS[:-1]) + " and Neptune."),
                (f"Which planet comes after {PLANETS[i % 7]}?", f"{PLANETS[i % 7 + 1]} comes after {PLANETS[i % 7]}."),
            ]
        )
    if k == 18:
        j, d = c(JOBS)
        return c([(f"What does {an(j)} do?", f"{cap(an(j))} {d}."), (f"Who {d}?", f"{cap(an(j))} {d}.")])
    if k == 19:
        a = r.randrange(1, 12)
        b = a + r.randrange(3, 8)
        al = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        i = r.randrange(25)
        return c(
            [
                (f"Count from {a} to {b}.", ", ".join(str(x) for x in range(a, b + 1)) + "."),
                (f"What number comes after {a + b}?", f"{a + b + 1} comes after {a + b}."),
                (f"What letter comes after {al[i]}?", f"{al[i + 1]} comes after {al[i]}."),
                (f"How do you write {a + 3} in words?", f"{a + 3} is written {NUMW[a + 3]}."),
            ]
        )
    if k == 20:
        return c(CHAT + MISC[-50:])
    if k == 21:
        w = c(
            "cat dog sun hat boat tree fish bird star moon book cake milk frog lamp door king rain snow ship bear lion duck goat".split()
        )
        return (f"How do you spell {w}?", f"{cap(w)} is spelled {'-'.join(w)}.")
    return c(MISC)


def vary(r, q):
    x = r.random()
    if x < 0.06:
        q = q.replace("What is ", "What's ", 1)
    elif x < 0.10:
        q = q[0].lower() + q[1:]
    elif x < 0.14 and q.startswith("What is") and re.search(r"\d [-+x] \d", q):
        q = q.replace("What is", "How much is", 1)
    elif x < 0.20 and re.search(r"\d [-+x] \d", q):
        q = q.replace(" + ", " plus ").replace(" - ", " minus ").replace(" x ", " times ")
    elif x < 0.23:
        q = "Please tell me: " + q
    elif x < 0.26:
        q = q.rstrip("?.")
    return q


def qa(r):
    n = 1 if r.random() < 0.6 else r.randrange(2, 7)
    items = dict(qa_items(r) for _ in range(n))
    return "\n".join(f"Question: {vary(r, q)}\nAnswer: {a}" for q, a in items.items())


def recall(r):
    c = r.choice
    n = r.randrange(2, 5)
    who = r.sample(BOYS + GIRLS, n)
    obj = r.sample(TOYS, n)
    col = [c(COLS) for _ in obj]
    pl = r.sample(PLACES, n)
    f = [f"{w} has {an(f'{k} {o}')} and is {at(p)}." for w, o, k, p in zip(who, obj, col, pl)]
    out = [" ".join(f)]
    for _ in range(1 if r.random() < 0.5 else r.randrange(2, 5)):
        i = r.randrange(n)
        w, o, k, p = who[i], obj[i], col[i], pl[i]
        q, a = c(
            [
                (f"Who has the {o}?", f"{w} has the {o}."),
                (f"Where is {w}?", f"{w} is {at(p)}."),
                (f"What does {w} have?", f"{w} has {an(f'{k} {o}')}."),
                (f"What colour is the {o}?", f"The {o} is {k}."),
                (f"Who is {at(p)}?", f"{w} is {at(p)}."),
            ]
        )
        out.append(f"Question: {q}\nAnswer: {a}")
    return "\n".join(out)


def article(r):
    a = r.choice(list(ANIMALS))
    b, so, h, f, l, co, g, z = ANIMALS[a]
    p = [
        f"The {a} is {an(g)}.",
        f"It lives in {h} and eats {f}.",
        f"A baby {a} is called {an(b)}.",
        f"{cap(an(a))} has {NUMW[l] if l else 'no'} legs and is often {co}.",
    ]
    if not so.startswith("nothing"):
        p.append(f"Its sound is {so}.")
    if r.random() < 0.5:
        n, q, k = r.choice(CAPITALS)
        p2 = [f"{n} is a country in {k}.", f"Its capital is {q}.", f"Many people in {n} live in {q}."]
        return " ".join(p2)
    h1 = p[0]
    rest = p[1:]
    r.shuffle(rest)
    return " ".join([h1] + rest)


def bible(path):
    vs = [l.split(" ", 1)[1].strip() for l in open(path, encoding="latin-1") if " " in l]
    return [" ".join(vs[i : i + 12]) for i in range(0, len(vs), 12)]


def docs(n, seed):
    r = random.Random(seed)
    for _ in range(n):
        x = r.random()
        yield (story if x < 0.36 else qa if x < 0.72 else recall if x < 0.94 else article)(r)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--bible")
    ap.add_argument("--docs", type=int, default=60000)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    d = list(docs(a.docs, a.seed)) + (bible(a.bible) if a.bible else [])
    random.Random(a.seed).shuffle(d)
    with open(f"{a.out}/text.txt", "w") as f:
        f.write("".join(x + "\n<|endoftext|>\n" for x in d))
    print(len(d), "documents,", sum(map(len, d)) / 1e6, "MB")


if __name__ == "__main__":
    main()
