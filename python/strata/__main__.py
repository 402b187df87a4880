"""python -m strata"""

from strata.cli import main

main()
