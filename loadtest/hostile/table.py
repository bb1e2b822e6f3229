"""All attacks, by name."""

from loadtest.hostile.attacks import Attack
from loadtest.hostile.calls import CALLS
from loadtest.hostile.floods import FLOODS
from loadtest.hostile.stalls import MANY, STALLS
from loadtest.hostile.tls_attacks import TLS_ATTACKS

ATTACKS: dict[str, Attack] = {attack.name: attack for attack in (*FLOODS, *CALLS, *STALLS, *MANY, *TLS_ATTACKS)}
