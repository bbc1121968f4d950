"""Runs every attack as whoever starts this, for tests that need another user. Prints one JSON object."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import wider_attacks
from attack_catalogue import ATTACKS, gets_through

from lodger_sandbox.users import box_user

folder = Path(sys.argv[1])
print(
    json.dumps(
        {
            attack.id: [gets_through(attack, box_user(), folder, protected=protected) for protected in (True, False)]
            for attack in (*ATTACKS, *wider_attacks.ATTACKS)
        }
    )
)
