"""Credentials: what opens a door to whoever reads it. They stand in no record at all.

Where a token has a form of its own (a prefix, a length), the form is the rule; else its label.
"""

from __future__ import annotations

from milepost.evidence.leak_rule import (
    IS,
    VALUE,
    exact,
    is_long_value,
    is_random,
    is_value,
    is_very_random,
    rule,
)

SECRET = "secret"
_NO_PASSWORD = r"(?!(?:required|needed|set|not|never|stored|asked|read|the|an?|in|by|no|only)\b)"
_LABEL = r"(?<![a-z])(?:\w{1,40}[_-])?"
_IN_QUERY = (
    r"(?:api[_-]?key|access[_-]?token|auth[_-]?token|id[_-]?token|token|key|sig|signature|secret|"
    r"password|passwd|code|session(?:id)?|x-amz-(?:signature|credential|security-token))"
)

RULES = (
    rule(
        SECRET,
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:.|\n)*?"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    rule(SECRET, r"PuTTY-User-Key-File-\d:(?:.|\n)*?(?:Private-MAC:\s*\w+|\Z)"),
    rule(
        SECRET,
        r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+|sk-\S+@openssh\.com)\s+AAAA[\w+/=]+"
        r"(?:[ \t]+[\w.+-]+(?:@[\w.-]+)?)?",
    ),
    exact(SECRET, r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    # clouds
    exact(SECRET, r"\b(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{12,}\b"),
    exact(SECRET, r"\bAIza[\w-]{30,}|\bya29\.[\w-]{15,}|\bGOCSPX-[\w-]{15,}|\b1//0[\w-]{20,}"),
    rule(SECRET, r"\b(?:account|shared ?access|storage) ?key\s*[=:]\s*" + VALUE, is_long_value),
    exact(SECRET, r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{30,35}"),
    # forges, registries, services
    exact(SECRET, r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bgl[a-z]{2,6}-[\w-]{16,}"),
    exact(SECRET, r"\bhf_[A-Za-z0-9]{24,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-AgE[\w-]{20,}"),
    exact(SECRET, r"\bdckr_pat_[\w-]{16,}|\bpypi-[\w-]{30,}", is_random),
    exact(SECRET, r"\bxox[a-z]-[\w-]{10,}|\bxapp-[\w-]{10,}"),
    rule(
        SECRET, r"\bhooks\.slack\.com/services/[\w/]+|\bdiscord(?:app)?\.com/api/webhooks/[\w/-]+"
    ),
    exact(SECRET, r"\bsk-[\w-]{20,}|\b(?:sk|rk|pk)_(?:live|test)_\w{10,}|\bgsk_\w{20,}", is_random),
    exact(
        SECRET, r"\bnvapi-[\w-]{20,}|\br8_\w{20,}|\bhvs\.[\w-]{16,}|\btskey-[\w-]{16,}", is_random
    ),
    exact(SECRET, r"\bSG\.[\w-]{16,}\.[\w-]{16,}|\b\d{8,10}:AA[\w-]{30,}"),
    exact(SECRET, r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    exact(SECRET, r"\$(?:1|2[abxy]|5|6|y|argon2\w*)\$[\w./$=,+-]{10,}"),
    # headers, queries, files of passwords
    rule(SECRET, r"\b(?:bearer|basic|digest|negotiate)\s+(?P<x>[\w.~+/-]{8,}=*)", is_random),
    rule(SECRET, r"\bauthorization[\"']?\s*:\s*(?:[a-z]+\s+)?" + VALUE, is_long_value),
    rule(SECRET, r"\b(?:set-)?cookie2?[\"']?\s*:\s*(?P<x>[\w.-]+=[^\n\"']+)"),
    rule(SECRET, r"[?&;]" + _IN_QUERY + r"=(?P<x>[^\s&#\"'<>\[\]]{6,})", is_value),
    rule(SECRET, r"\b(?:machine\s+(?P<x>\S+\s+login\s+\S+\s+password\s+[^\s\[]\S*))"),
    rule(SECRET, r"\blogin\s+\S+\s+password\s+(?P<x>[^\s\[]\S*)"),
    rule(SECRET, r"\bauth\"\s*:\s*\"(?P<x>[\w+/=-]{12,})\""),
    rule(SECRET, r"\b[a-z][a-z0-9+.-]{0,15}://(?P<x>[^\s/@:\[\]]*:[^\s/@\[\]]+@[^\s/\[\]]+)"),
    # labels
    rule(
        SECRET,
        _LABEL + r"(?:password|passwd|passphrase|passcode|pwd)(?:[_-]\w+)?[\"']?" + IS + VALUE,
        is_value,
    ),
    rule(SECRET, r"(?<=[_-])pw" + IS + VALUE, is_value),
    rule(SECRET, r"\bpass(?:word|phrase|code)\s+(?:is|was)\s+" + _NO_PASSWORD + VALUE, is_value),
    rule(
        SECRET,
        _LABEL + r"(?:secret|api_?-?key|access_?-?key|private_?-?key|credentials?|cookie|"
        r"license_?-?key|encryption_?-?key)(?:[_-]\w+)?[\"']?" + IS + VALUE,
        is_long_value,
    ),
    rule(SECRET, r"\b\w{1,40}[_-](?:token|key)[\"']?" + IS + VALUE, is_long_value),
    rule(SECRET, _LABEL + r"(?:token|key)(?:[_-]\w+)?[\"']?" + IS + VALUE, is_random),
    # command lines
    rule(
        SECRET,
        r"--?(?:[\w-]{1,30}-)?(?:password|passwd|passphrase|secret|api-?key|access-?key)(?:\s+|=)"
        + VALUE,
        is_value,
    ),
    rule(SECRET, r"--?(?:[\w-]{1,30}-)?(?:token|key)(?:\s+|=)(?!-)" + VALUE, is_long_value),
    rule(SECRET, r"\b(?:mysql|mysqldump|mariadb)\b[^\n]*?\s-p(?P<x>[^\s\[]+)"),
    rule(SECRET, r"\bsshpass\b[^\n]*?\s-p\s*" + VALUE),
    rule(SECRET, r"\b(?:curl|wget|http)\b[^\n]*?\s(?:-u|--user)[\s=]+(?P<x>[^\s:\[]+:[^\s\[]+)"),
    exact(SECRET, r"(?<![\w+/=.:-])[A-Za-z0-9+/]{40,}(?![\w+/.-])", is_very_random),
)
"""What is taken of a labelled secret is its value; the label stays and tells where it was."""
