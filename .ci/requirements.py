"""Prints what the project's checks need from the package index: its dependencies and its extras, without itself."""

import re
import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text()
try:
    import tomllib
except ImportError:  # Python 3.10: pip carries one
    from pip._vendor import tomli as tomllib

pyproject = tomllib.loads(text)
project = pyproject["project"]
wanted = [*pyproject["build-system"]["requires"], *project["dependencies"]]
for extra in project["optional-dependencies"].values():
    wanted += extra
print("\n".join(w for w in wanted if re.split(r"[\[<>=~! ]", w)[0] != project["name"]))
