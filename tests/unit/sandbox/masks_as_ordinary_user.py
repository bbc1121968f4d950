"""Looks for what is masked as whoever starts this. Prints one JSON object."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from support.mask_cases import AS_MADE, MASKS_FIRST, sample

parent = Path(sys.argv[1])
print(json.dumps([asdict(sample(parent, order)) for order in (AS_MADE, MASKS_FIRST)]))
