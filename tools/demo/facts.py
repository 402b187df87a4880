"""Small fact tables behind the synthetic part of the demo corpus (own work; used by corpus.py, not run by itself)."""

# name: (baby, sound, home, food, legs, colour, group, size 1..9)
ANIMALS = {
    "dog": ("puppy", "woof", "a kennel", "meat and bones", 4, "brown", "mammal", 4),
    "cat": ("kitten", "meow", "a house", "fish and milk", 4, "grey", "mammal", 3),
    "cow": ("calf", "moo", "a barn", "grass", 4, "white and black", "mammal", 7),
    "horse": ("foal", "neigh", "a stable", "hay", 4, "brown", "mammal", 7),
    "pig": ("piglet", "oink", "a sty", "corn", 4, "pink", "mammal", 5),
    "sheep": ("lamb", "baa", "a field", "grass", 4, "white", "mammal", 5),
    "goat": ("kid", "bleat", "a pen", "leaves", 4, "white", "mammal", 5),
    "duck": ("duckling", "quack", "a pond", "weeds", 2, "yellow", "bird", 3),
    "hen": ("chick", "cluck", "a coop", "seeds", 2, "red", "bird", 3),
    "frog": ("tadpole", "croak", "a pond", "flies", 4, "green", "amphibian", 2),
    "lion": ("cub", "roar", "the grassland", "meat", 4, "golden", "mammal", 7),
    "tiger": ("cub", "roar", "the jungle", "meat", 4, "orange", "mammal", 7),
    "bear": ("cub", "growl", "a cave", "honey and fish", 4, "brown", "mammal", 7),
    "wolf": ("pup", "howl", "a den", "meat", 4, "grey", "mammal", 5),
    "fox": ("cub", "bark", "a den", "berries and mice", 4, "red", "mammal", 4),
    "rabbit": ("bunny", "squeak", "a burrow", "carrots", 4, "white", "mammal", 2),
    "mouse": ("pup", "squeak", "a hole", "cheese", 4, "grey", "mammal", 1),
    "elephant": ("calf", "trumpet", "the grassland", "leaves", 4, "grey", "mammal", 9),
    "monkey": ("baby", "chatter", "a tree", "bananas", 4, "brown", "mammal", 4),
    "owl": ("owlet", "hoot", "a tree", "mice", 2, "brown", "bird", 3),
    "crow": ("chick", "caw", "a nest", "seeds", 2, "black", "bird", 2),
    "bee": ("larva", "buzz", "a hive", "nectar", 6, "yellow and black", "insect", 1),
    "ant": ("larva", "nothing at all", "an anthill", "crumbs", 6, "black", "insect", 1),
    "spider": ("spiderling", "nothing at all", "a web", "flies", 8, "black", "arachnid", 1),
    "snake": ("snakelet", "hiss", "a hole", "mice", 0, "green", "reptile", 3),
    "fish": ("fry", "nothing at all", "the water", "worms", 0, "silver", "fish", 2),
    "whale": ("calf", "song", "the sea", "krill", 0, "blue", "mammal", 9),
    "shark": ("pup", "nothing at all", "the sea", "fish", 0, "grey", "fish", 8),
    "penguin": ("chick", "honk", "the cold south", "fish", 2, "black and white", "bird", 3),
    "camel": ("calf", "grunt", "the desert", "dry grass", 4, "brown", "mammal", 8),
    "giraffe": ("calf", "hum", "the grassland", "leaves", 4, "yellow and brown", "mammal", 9),
    "zebra": ("foal", "bark", "the grassland", "grass", 4, "black and white", "mammal", 7),
    "deer": ("fawn", "grunt", "the forest", "leaves", 4, "brown", "mammal", 6),
    "squirrel": ("kit", "chatter", "a tree", "nuts", 4, "red", "mammal", 2),
    "hedgehog": ("hoglet", "snuffle", "a hedge", "beetles", 4, "brown", "mammal", 2),
    "turtle": ("hatchling", "nothing at all", "a pond", "weeds", 4, "green", "reptile", 3),
    "swan": ("cygnet", "honk", "a lake", "weeds", 2, "white", "bird", 4),
    "goose": ("gosling", "honk", "a yard", "grass", 2, "white", "bird", 3),
    "eagle": ("eaglet", "screech", "a cliff", "fish", 2, "brown", "bird", 4),
    "kangaroo": ("joey", "grunt", "the bush", "grass", 2, "brown", "mammal", 6),
    "donkey": ("foal", "bray", "a stable", "hay", 4, "grey", "mammal", 6),
    "butterfly": ("caterpillar", "nothing at all", "a garden", "nectar", 6, "blue", "insect", 1),
    "crocodile": ("hatchling", "hiss", "a river", "meat", 4, "green", "reptile", 7),
    "bat": ("pup", "squeak", "a cave", "moths", 2, "black", "mammal", 2),
}
CAPITALS = """France:Paris:Europe Germany:Berlin:Europe Spain:Madrid:Europe Italy:Rome:Europe Portugal:Lisbon:Europe Ireland:Dublin:Europe
Norway:Oslo:Europe Sweden:Stockholm:Europe Denmark:Copenhagen:Europe Finland:Helsinki:Europe Poland:Warsaw:Europe Austria:Vienna:Europe
Greece:Athens:Europe Hungary:Budapest:Europe Romania:Bucharest:Europe Bulgaria:Sofia:Europe Iceland:Reykjavik:Europe Belgium:Brussels:Europe
Ukraine:Kyiv:Europe Croatia:Zagreb:Europe Serbia:Belgrade:Europe England:London:Europe Scotland:Edinburgh:Europe Wales:Cardiff:Europe
Switzerland:Bern:Europe Russia:Moscow:Europe China:Beijing:Asia Japan:Tokyo:Asia India:Delhi:Asia Thailand:Bangkok:Asia Vietnam:Hanoi:Asia
Nepal:Kathmandu:Asia Iran:Tehran:Asia Iraq:Baghdad:Asia Turkey:Ankara:Asia Jordan:Amman:Asia Lebanon:Beirut:Asia Indonesia:Jakarta:Asia
Malaysia:Kuala_Lumpur:Asia Mongolia:Ulaanbaatar:Asia Pakistan:Islamabad:Asia Bangladesh:Dhaka:Asia Egypt:Cairo:Africa Kenya:Nairobi:Africa
Ghana:Accra:Africa Nigeria:Abuja:Africa Ethiopia:Addis_Ababa:Africa Morocco:Rabat:Africa Tunisia:Tunis:Africa Algeria:Algiers:Africa
Senegal:Dakar:Africa Uganda:Kampala:Africa Zambia:Lusaka:Africa Canada:Ottawa:North_America Mexico:Mexico_City:North_America
Cuba:Havana:North_America Brazil:Brasilia:South_America Argentina:Buenos_Aires:South_America Chile:Santiago:South_America Peru:Lima:South_America
Colombia:Bogota:South_America Ecuador:Quito:South_America Uruguay:Montevideo:South_America Venezuela:Caracas:South_America
Australia:Canberra:Oceania New_Zealand:Wellington:Oceania""".replace("\n", " ").split(" ")
CAPITALS = [tuple(x.replace("_", " ") for x in c.split(":")) for c in CAPITALS]
OPPOSITES = """hot:cold big:small tall:short fast:slow happy:sad light:dark open:closed up:down day:night wet:dry hard:soft old:new full:empty
clean:dirty early:late rich:poor strong:weak heavy:light loud:quiet near:far high:low left:right good:bad black:white in:out first:last
long:short wide:narrow thick:thin true:false right:wrong easy:difficult brave:afraid kind:cruel sweet:bitter awake:asleep young:old
inside:outside above:below start:finish push:pull give:take come:go laugh:cry win:lose remember:forget love:hate always:never
more:less many:few smooth:rough sharp:blunt safe:dangerous""".split()
OPPOSITES = [tuple(o.split(":")) for o in OPPOSITES]
PAST = """go:went run:ran eat:ate see:saw sing:sang swim:swam write:wrote read:read take:took give:gave come:came fly:flew fall:fell find:found
make:made buy:bought bring:brought think:thought catch:caught teach:taught tell:told sell:sold keep:kept sleep:slept feel:felt leave:left
lose:lost build:built send:sent spend:spent speak:spoke break:broke wake:woke drive:drove ride:rode draw:drew grow:grew know:knew throw:threw
begin:began drink:drank sit:sat stand:stood hear:heard hide:hid win:won meet:met hold:held walk:walked play:played jump:jumped help:helped
look:looked cook:cooked dance:danced smile:smiled carry:carried cry:cried try:tried""".split()
PAST = [tuple(o.split(":")) for o in PAST]
PLURALS = """mouse:mice child:children man:men woman:women foot:feet tooth:teeth goose:geese leaf:leaves wolf:wolves knife:knives life:lives loaf:loaves
box:boxes fox:foxes bus:buses dish:dishes berry:berries baby:babies city:cities story:stories dog:dogs cat:cats book:books apple:apples
tree:trees star:stars boat:boats house:houses sheep:sheep fish:fish deer:deer potato:potatoes tomato:tomatoes""".split()
PLURALS = [tuple(o.split(":")) for o in PLURALS]
COLOURS = """grass:green sky:blue snow:white coal:black banana:yellow lemon:yellow tomato:red strawberry:red carrot:orange blood:red milk:white
leaf:green sun:yellow night:black cherry:red plum:purple chocolate:brown pea:green frog:green polar_bear:white cloud:white sea:blue
fire_engine:red pumpkin:orange mud:brown elephant:grey sunflower:yellow rose:red lime:green""".split()
COLOURS = [tuple(x.replace("_", " ") for x in o.split(":")) for o in COLOURS]
USES = """spoon:eat soup:metal knife:cut bread:metal broom:sweep the floor:wood pen:write a letter:plastic brush:paint a picture:wood hammer:hit a nail:metal
key:open a door:metal lamp:light a room:glass umbrella:stay dry in the rain:cloth needle:sew a shirt:metal axe:chop wood:metal bucket:carry water:metal
rope:tie a boat:string ladder:climb up high:wood pillow:rest your head:cloth blanket:keep warm:wool kettle:boil water:metal oven:bake bread:metal
clock:tell the time:metal map:find the way:paper candle:see in the dark:wax comb:tidy your hair:plastic soap:wash your hands:fat shovel:dig a hole:metal
scissors:cut paper:metal cup:drink tea:clay basket:carry apples:straw saw:cut wood:metal towel:dry your hands:cloth ruler:measure a line:wood
telescope:look at the stars:glass drum:make music:wood tent:sleep outside:cloth boots:walk in the mud:rubber"""
import re as _re

USES = [tuple(u.split(":")) for u in _re.findall(r"[a-z]+:[a-z ]+?:[a-z]+", USES.replace("\n", " "))]
KINDS = {
    "fruit": "apple banana pear grape cherry plum peach lemon orange mango melon strawberry".split(),
    "vegetable": "carrot potato onion cabbage pea bean leek turnip spinach pumpkin radish celery".split(),
    "tool": "hammer saw spade axe drill rake shovel wrench chisel".split(),
    "colour": "red blue green yellow orange purple pink brown black white grey".split(),
    "metal": "iron gold silver copper tin lead zinc".split(),
    "shape": "circle square triangle star heart".split(),
    "toy": "doll ball kite puzzle train teddy yo-yo".split(),
    "drink": "water milk tea juice coffee lemonade".split(),
    "flower": "rose tulip daisy lily violet poppy".split(),
    "tree": "oak pine maple birch willow".split(),
    "instrument": "drum flute piano violin guitar trumpet harp".split(),
    "vehicle": "car bus train bicycle boat truck tram".split(),
}
SIDES = [("triangle", 3), ("square", 4), ("rectangle", 4), ("pentagon", 5), ("hexagon", 6), ("octagon", 8)]
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
SEASONS = ["winter"] * 2 + ["spring"] * 3 + ["summer"] * 3 + ["autumn"] * 3 + ["winter"]
NUMW = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
JOBS = [
    ("baker", "bakes bread"),
    ("teacher", "teaches children"),
    ("farmer", "grows food"),
    ("doctor", "helps sick people"),
    ("pilot", "flies a plane"),
    ("fisherman", "catches fish"),
    ("carpenter", "makes things from wood"),
    ("tailor", "sews clothes"),
    ("cook", "makes meals"),
    ("painter", "paints pictures"),
    ("gardener", "looks after plants"),
    ("postman", "brings letters"),
    ("firefighter", "puts out fires"),
    ("sailor", "sails a ship"),
    ("singer", "sings songs"),
    ("nurse", "cares for sick people"),
    ("librarian", "looks after books"),
    ("shepherd", "looks after sheep"),
    ("miller", "grinds corn"),
    ("builder", "builds houses"),
]
MISC = [
    ("How many days are there in a week?", "There are seven days in a week."),
    ("How many months are there in a year?", "There are twelve months in a year."),
    ("How many hours are there in a day?", "There are twenty four hours in a day."),
    ("How many minutes are there in an hour?", "There are sixty minutes in an hour."),
    ("How many seconds are there in a minute?", "There are sixty seconds in a minute."),
    ("How many legs does a chair have?", "A chair usually has four legs."),
    ("What do bees make?", "Bees make honey."),
    ("What do we breathe?", "We breathe air."),
    ("What is ice made of?", "Ice is made of frozen water."),
    ("What falls from clouds when it is cold?", "Snow falls from clouds when it is cold."),
    ("What do plants need to grow?", "Plants need water, air and sunlight to grow."),
    ("Where does the sun rise?", "The sun rises in the east."),
    ("Where does the sun set?", "The sun sets in the west."),
    ("What do we see with?", "We see with our eyes."),
    ("What do we hear with?", "We hear with our ears."),
    ("What do we smell with?", "We smell with our nose."),
    ("How many fingers are on one hand?", "There are five fingers on one hand."),
    ("What is the largest planet?", "Jupiter is the largest planet."),
    ("Which planet do we live on?", "We live on Earth."),
    ("What does the moon go around?", "The moon goes around the Earth."),
    ("What does the Earth go around?", "The Earth goes around the sun."),
    ("What is bread made from?", "Bread is made from flour and water."),
    ("What is cheese made from?", "Cheese is made from milk."),
    ("What do hens lay?", "Hens lay eggs."),
    ("What is a group of wolves called?", "A group of wolves is called a pack."),
    ("What is a group of sheep called?", "A group of sheep is called a flock."),
    ("What is a group of fish called?", "A group of fish is called a school."),
    ("What is a young cat called?", "A young cat is called a kitten."),
    ("What is the opposite of north?", "The opposite of north is south."),
    ("What is the opposite of east?", "The opposite of east is west."),
    ("How many wheels does a bicycle have?", "A bicycle has two wheels."),
    ("How many wheels does a car have?", "A car has four wheels."),
    ("What is the biggest animal in the sea?", "The blue whale is the biggest animal in the sea."),
    ("What is the tallest animal?", "The giraffe is the tallest animal."),
    ("What is water made of?", "Water is made of hydrogen and oxygen."),
    ("At what temperature does water freeze?", "Water freezes at zero degrees."),
    ("At what temperature does water boil?", "Water boils at one hundred degrees."),
    ("What comes after night?", "Day comes after night."),
    ("Why is the sky blue?", "The sky is blue because the air scatters blue light more than red light."),
    ("Why do leaves fall in autumn?", "Leaves fall in autumn because the tree saves water for the winter."),
    ("Why do birds fly south?", "Birds fly south to find food and warm weather in the winter."),
    ("Why do we sleep?", "We sleep because our body and our mind need rest."),
    ("Why does ice float?", "Ice floats because it is lighter than water."),
    ("Why do cats purr?", "Cats purr when they are happy and calm."),
    ("Why does it rain?", "It rains when the drops of water in a cloud become too heavy."),
    ("Why is the sea salty?", "The sea is salty because rivers carry salt from the rocks."),
    ("What is a rainbow?", "A rainbow is sunlight that raindrops split into many colours."),
    ("What is thunder?", "Thunder is the sound that lightning makes."),
    ("What is a shadow?", "A shadow is a dark place where something stops the light."),
    ("What is the moon?", "The moon is a ball of rock that goes around the Earth."),
    ("What is the sun?", "The sun is a star. It gives us light and heat."),
    ("What is a star?", "A star is a great ball of hot gas far away."),
    ("What is a river?", "A river is a long stream of water that flows to the sea."),
    ("What is an island?", "An island is land with water all around it."),
    ("What is a desert?", "A desert is a dry place where very little rain falls."),
    ("What is a forest?", "A forest is a large place with many trees."),
    ("What is a mountain?", "A mountain is a very high hill."),
    ("What is a library?", "A library is a place where you can borrow books."),
    ("What is a friend?", "A friend is someone you like and trust."),
    ("What is a story?", "A story tells what happened to someone."),
    ("What is music?", "Music is sound that is pleasant to hear."),
    ("What is snow?", "Snow is frozen water that falls from clouds."),
    ("How many continents are there?", "There are seven continents."),
    ("Which is the largest ocean?", "The Pacific is the largest ocean."),
    ("Which is the longest river in Africa?", "The Nile is the longest river in Africa."),
    ("Which is the highest mountain?", "Everest is the highest mountain."),
    ("How many letters are in the alphabet?", "There are twenty six letters in the alphabet."),
    ("What are the seasons?", "The seasons are spring, summer, autumn and winter."),
    (
        "What are the colours of the rainbow?",
        "The colours of the rainbow are red, orange, yellow, green, blue, indigo and violet.",
    ),
    ("What do you get if you mix blue and yellow?", "Blue and yellow make green."),
    ("What do you get if you mix red and yellow?", "Red and yellow make orange."),
    ("What do you get if you mix red and blue?", "Red and blue make purple."),
    ("What is wool made from?", "Wool comes from sheep."),
    ("Where does milk come from?", "Milk comes from cows."),
    ("Where do eggs come from?", "Eggs come from hens."),
    ("Where does honey come from?", "Honey comes from bees."),
    ("Where does wood come from?", "Wood comes from trees."),
    ("What do you wear on your feet?", "You wear shoes on your feet."),
    ("What do you wear on your head?", "You wear a hat on your head."),
    ("What do you do when you are hungry?", "When you are hungry, you eat."),
    ("What do you do when you are tired?", "When you are tired, you sleep."),
    ("What do you do when you are thirsty?", "When you are thirsty, you drink water."),
    ("What is the first month of the year?", "January is the first month of the year."),
    ("What is the last month of the year?", "December is the last month of the year."),
    ("What is the hottest season?", "Summer is the hottest season."),
    ("What is the coldest season?", "Winter is the coldest season."),
]
CHAT = [
    ("Hello", "Hello! How can I help you today?"),
    ("Hi", "Hello! What would you like to talk about?"),
    ("Good morning", "Good morning! I hope you slept well."),
    ("Good night", "Good night! Sleep well."),
    ("How are you?", "I am very well, thank you. How are you?"),
    ("Thank you", "You are welcome."),
    ("Who are you?", "I am a very small language model. I can tell stories and answer simple questions."),
    ("What can you do?", "I can tell short stories, answer simple questions and do small sums."),
    ("Can you tell me a story?", "Yes. Just ask me for a story about an animal or a child."),
    ("Goodbye", "Goodbye! Come back soon."),
    ("Are you a person?", "No. I am a small computer program."),
    ("What is your name?", "I have no name. I am a small demo model."),
]
