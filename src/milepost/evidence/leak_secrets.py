"""Credentials: what opens a door to whoever reads it. They stand in no record at all.

Where a token has a form of its own (a prefix, a length), the form is the rule; else its label.
"""

from __future__ import annotations

from collections.abc import Callable

from milepost.evidence.leak_rule import (
    IS,
    VALUE,
    Rule,
    exact,
    is_long_value,
    is_random,
    is_value,
    is_very_random,
    rule,
)

SECRET = "secret"
Real = Callable[[str], bool] | None
_NO_PASSWORD = r"(?!(?:required|needed|set|not|never|stored|asked|read|the|an?|in|by|no|only)\b)"
_LABEL = r"(?<![a-z])"
_IN_QUERY = (
    r"(?:api[_-]?key|access[_-]?token|auth[_-]?token|id[_-]?token|token|key|sig|signature|secret|"
    r"password|passwd|code|session(?:id)?|x-amz-(?:signature|credential|security-token))"
)


def _any_case(words: str, pattern: str, is_real: Real = None) -> Rule:
    """A text that holds none of the `words` (lower case, blanks between them) is not looked at."""
    return rule(SECRET, pattern, is_real, *words.split())


def _as_is(words: str, pattern: str, is_real: Real = None) -> Rule:
    """The same, and capital letters are capital."""
    return exact(SECRET, pattern, is_real, *words.split())


RULES = (
    _any_case(
        "-----begin",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:.|\n)*?"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _any_case("putty", r"PuTTY-User-Key-File-\d:(?:.|\n)*?(?:Private-MAC:\s*\w+|\Z)"),
    _any_case(
        "aaaa",
        r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+|sk-\S+@openssh\.com)\s+AAAA[\w+/=]+"
        r"(?:[ \t]+[\w.+-]+(?:@[\w.-]+)?)?",
    ),
    _as_is("age-secret", r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    # clouds
    _as_is("akia asia aroa aida agpa anpa", r"\b(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{12,}\b"),
    _as_is("aiza ya29. gocspx- 1//0", r"\bAIza[\w-]{30,}|\bya29\.[\w-]{15,}|\bGOCSPX-[\w-]{15,}|\b1//0[\w-]{20,}"),
    _any_case("account shared storage", r"\b(?:account|shared ?access|storage) ?key\s*[=:]\s*" + VALUE, is_long_value),
    _as_is("q~", r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{30,35}"),
    # forges, registries, services
    _as_is("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}"),
    _as_is("glpat- glrt- gldt- glcbt- glptt- glft- glagent- gloas-", r"\bgl[a-z]{2,6}-[\w-]{16,}"),
    _as_is("hf_ npm_ pypi-age", r"\bhf_[A-Za-z0-9]{24,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-AgE[\w-]{20,}"),
    _as_is("dckr_pat_ pypi-", r"\bdckr_pat_[\w-]{16,}|\bpypi-[\w-]{30,}", is_random),
    _as_is("xox xapp-", r"\bxox[a-z]-[\w-]{10,}|\bxapp-[\w-]{10,}"),
    _any_case(
        "slack.com/services api/webhooks",
        r"\bhooks\.slack\.com/services/[\w/]+|\bdiscord(?:app)?\.com/api/webhooks/[\w/-]+",
    ),
    _as_is("sk- k_live_ k_test_ gsk_", r"\bsk-[\w-]{20,}|\b(?:sk|rk|pk)_(?:live|test)_\w{10,}|\bgsk_\w{20,}", is_random),
    _as_is("nvapi- r8_ hvs. tskey-", r"\bnvapi-[\w-]{20,}|\br8_\w{20,}|\bhvs\.[\w-]{16,}|\btskey-[\w-]{16,}", is_random),
    _as_is("sg. :aa", r"\bSG\.[\w-]{16,}\.[\w-]{16,}|\b\d{8,10}:AA[\w-]{30,}"),
    _as_is("eyj", r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    _as_is("$1$ $2 $5$ $6$ $y$ $argon", r"\$(?:1|2[abxy]|5|6|y|argon2\w*)\$[\w./$=,+-]{10,}"),
    # headers, queries, files of passwords
    _any_case("bearer basic digest negotiate", r"\b(?:bearer|basic|digest|negotiate)\s+(?P<x>[\w.~+/-]{8,}=*)", is_random),
    _any_case("authorization", r"\bauthorization[\"']?\s*:\s*(?:[a-z]+\s+)?" + VALUE, is_long_value),
    _any_case("cookie", r"\b(?:set-)?cookie2?[\"']?\s*:\s*(?P<x>[\w.-]+=[^\n\"']+)"),
    _any_case("", r"[?&;]" + _IN_QUERY + r"=(?P<x>[^\s&#\"'<>\[\]]{6,})", is_value),
    _any_case("machine", r"\b(?:machine\s+(?P<x>\S+\s+login\s+\S+\s+password\s+[^\s\[]\S*))"),
    _any_case("login", r"\blogin\s+\S+\s+password\s+(?P<x>[^\s\[]\S*)"),
    _any_case('auth"', r"\bauth\"\s*:\s*\"(?P<x>[\w+/=-]{12,})\""),
    _any_case("://", r"\b[a-z][a-z0-9+.-]{0,15}://(?P<x>[^\s/@:\[\]]*:[^\s/@\[\]]+@[^\s/\[\]]+)"),
    # labels
    _any_case(
        "pass pwd",
        _LABEL + r"(?:password|passwd|passphrase|passcode|pwd)(?:[_-]\w+)?[\"']?" + IS + VALUE,
        is_value,
    ),
    _any_case("_pw -pw", r"(?<=[_-])pw" + IS + VALUE, is_value),
    _any_case("pass", r"\bpass(?:word|phrase|code)\s+(?:is|was)\s+" + _NO_PASSWORD + VALUE, is_value),
    _any_case(
        "secret key credential cookie",
        _LABEL + r"(?:secret|api_?-?key|access_?-?key|private_?-?key|credentials?|cookie|"
        r"license_?-?key|encryption_?-?key)(?:[_-]\w+)?[\"']?" + IS + VALUE,
        is_long_value,
    ),
    _any_case("token key", r"(?<=\w[_-])(?:token|key)[\"']?" + IS + VALUE, is_long_value),
    _any_case("token key", _LABEL + r"(?:token|key)(?:[_-]\w+)?[\"']?" + IS + VALUE, is_random),
    # command lines
    _any_case(
        "pass secret key",
        r"--?(?:[\w-]{1,30}-)?(?:password|passwd|passphrase|secret|api-?key|access-?key)(?:\s+|=)"
        + VALUE,
        is_value,
    ),
    _any_case("token key", r"--?(?:[\w-]{1,30}-)?(?:token|key)(?:\s+|=)(?!-)" + VALUE, is_long_value),
    _any_case("mysql mariadb", r"\b(?:mysql|mysqldump|mariadb)\b[^\n]*?\s-p(?P<x>[^\s\[]+)"),
    _any_case("sshpass", r"\bsshpass\b[^\n]*?\s-p\s*" + VALUE),
    _any_case("curl wget http", r"\b(?:curl|wget|http)\b[^\n]*?\s(?:-u|--user)[\s=]+(?P<x>[^\s:\[]+:[^\s\[]+)"),
    _as_is("", r"(?<![\w+/=.:-])[A-Za-z0-9+/]{40,}(?![\w+/.-])", is_very_random),
)  # fmt: skip
"""What is taken of a labelled secret is its value; the label stays and tells where it was."""
