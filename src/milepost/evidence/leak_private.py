"""Who and where: names of people, machines, places and projects that stay at the site."""

from __future__ import annotations

from milepost.evidence.leak_rule import (
    IS,
    VALUE,
    exact,
    is_account_name,
    is_ip,
    is_machine,
    is_name,
    is_partition,
    is_registry,
    is_value,
    rule,
)
from milepost.evidence.private_names import VERSION

_PATH = r"[\w.@+%~{}$=,-]"
_SYSTEM = r"(?:dev|proc|sys|usr|bin|sbin|lib|lib64|etc|boot)"
_ROOTS = (
    r"(?:home|users?|scratch|work|projects?|data|lustre|gpfs|beegfs|mnt|media|nfs|export|local|tmp|"
    r"var|opt|srv|root|group|groups|store|archive|fs)"
)
_PERSON = r"(?P<x>[A-ZÀ-Þ][\w'’-]+(?:[ ]+(?:[A-ZÀ-Þ]\.|[A-ZÀ-Þ][\w'’-]+|von|van|de[rnls]?|du|la|bin|al)){1,3})"
_OF_PERSON = (
    r"(?:(?:[Aa]uthors?|PI|P\.I\.|[Pp]rincipal [Ii]nvestigator|[Cc]ontact|[Oo]wner|[Ss]upervisors?|"
    r"[Aa]dvis[oe]r|[Mm]aintainer|[Oo]perator|[Rr]eal [Nn]ame|[Ff]ull [Nn]ame|[Gg]ecos|[Ii]nvestigator)"
    r"\s*(?:[:=]|\bis\b)|(?:[Ss]ubmitted|[Rr]un|[Cc]reated|[Mm]aintained|[Oo]wned) by)\s*"
)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SUBMIT = r"(?:#SBATCH|#PBS|#BSUB|\bsbatch|\bsrun|\bsalloc|\bqsub|\bbsub)\b[^\n]*?"

RULES = (
    # people
    rule("remote", r"(?<![\w.+-])[\w.-]{1,64}@[\w.-]{1,255}:(?!//)[\w~][\w./~+-]*/[\w./~+-]+"),
    rule("remote", r"\b(?:ssh|git|git\+ssh|svn\+ssh)://[^\s\"'<>\[\]]+|\bhttps?://[^\s\"'<>\[\]]+\.git\b"),
    rule("mail", r"[\w.+-]{1,64}@(?:[\w-]{1,63}\.)+[a-z]{2,24}(?![\w-])"),
    exact("user", r"(?<![\w\\$])[A-Z][A-Z0-9-]{2,14}\\[a-z][\w.-]{2,}", is_account_name),
    exact("person", r"\b" + _OF_PERSON + r"(?:(?:Dr|Prof)\.?\s+)*" + _PERSON),
    exact("person", r"\b(?:Dr|Prof|Mr|Mrs|Ms|Herr|Frau)\.?\s+(?:(?:Dr|Prof)\.?\s+)*" + _PERSON),
    exact("person", r"(?<![\w-])\d{4}-\d{4}-\d{4}-\d{3}[\dX](?![\w-])"),
    exact("phone", r"(?<![\w.+])\+\d{1,3}(?:[ ()/-]{1,2}\d{1,7}){2,6}(?![\w.])|(?<![\w.+])\+[1-9]\d{9,13}(?![\w.])"),
    rule("phone", r"\b(?:phone|tel|telephone|mobile|fax|cell)\b\.?\s*:?\s*(?P<x>[+(]?\d[\d ()/-]{5,20}\d)"),
    exact("phone", r"(?<![\w.+-])\(?[2-9]\d{2}\)?[ -]\d{3}-\d{4}(?![\w-])"),
    rule("user", r"\b(?:user|username|user_?name|user_?id|login|logname|owner|uid|gid)[\"']?\s*=\s*" + VALUE, is_name),
    rule("user", r"\b(?:user_?name|user_?id|logname|login name)[\"']?\s*:\s*" + VALUE, is_name),
    rule("user", r"\b(?:uid|gid|groups)=\d+\((?P<x>[\w.-]+)\)"),
    rule("user", r"\bcancelled by (?P<x>\d{3,})\b"),
    # money and projects
    exact("grant", r"\b(?:[Gg]rant|[Aa]ward|[Ff]unding|[Pp]roposal)s?(?:\s+(?:[Aa]greement|[Nn]umber|[Nn]o\.?|[Nn]r\.?|ID|id))*[\s:#=]+(?:[A-Z]{2,8}\s+)?(?P<x>[A-Z]{0,6}[ -]?\d[\w/.-]{3,}\w|[A-Z]{1,6}[\w/-]*\d[\w/.-]{2,}\w)"),
    exact("grant", r"\b[RUFPKTD]\d{2}[ ]?[A-Z]{2}\d{6}\b|\b(?:ACI|OAC|CHE|DMR|PHY|AST|DMS)-\d{7}\b"),
    rule("account", r"(?:\baccount|\bproject|\bqos|\breservation|\bwckey|\bbilling)(?:_?name|[_ ]?(?:id|code|number))?[\"']?" + IS + VALUE, is_name),
    rule("account", r"--(?:account|project|qos|reservation|wckey)(?:\s+|=)" + VALUE, is_name),
    rule("account", _SUBMIT + r"\s-(?-i:[AP])\s*" + VALUE, is_name),
    rule("partition", r"(?:\bpartition|\bqueue)s?(?:_?name)?[\"']?" + IS + VALUE, is_partition),
    rule("partition", r"--(?:partition|queue)(?:\s+|=)" + VALUE, is_name),
    rule("partition", _SUBMIT + r"\s-(?-i:[pq])\s*" + VALUE, is_name),
    # numbers that identify
    rule("id", r"(?<![\w-])(?:GPU-|MIG-)?" + _UUID + r"(?![\w-])"),
    rule("job", r"\b(?:slurm|pbs|lsf|sge|cobalt)?_?(?:jobs?|(?:job|step|task|array)(?:[ _-]?array)?[ _-]?(?:id|number|no)s?)[\s=:#\"']{1,3}(?P<x>\d{3,}(?:[_.]\w+)?(?:\[[\d,%-]+\])?)"),
    exact("job", r"(?<![\w.-])(?!(?:19|20)\d{6}_)\d{5,10}_(?:\d{1,6}|\[[\d,%-]+\])(?![\w.-])"),
    rule("job", r"(?<![\w.-])\d{3,10}(?:\[\d*\])?\.(?:pbs|sdb|server|torque|head|master|sched)[\w-]*(?:\.[\w-]+)*"),
    rule("job", r"\bslurm-(?P<x>\d+(?:_\d+)?)"),
    rule("job", r"\bsubmitted batch job (?P<x>\d+)"),
    # machines and networks
    rule("license", r"(?<![\w@.])\d{4,5}@[\w.-]+"),
    exact("host", r"(?<![\w@])[a-z_][\w.-]{1,64}@" + VERSION + r"(?P<x>[a-z][\w-]+[\w.-]*)(?=[:\s]|$)"),
    rule("storage", r"\b(?:s3|gs|gcs|az|abfss?|wasbs?|adl|hdfs|swift|sftp|scp|ftp|rsync|smb|nfs|file|globus|ceph|davs?|irods)://(?P<x>[^\s\"'<>\[\]]+)"),
    rule("image", r"\b(?:docker|oras|library|shub|podman|singularity|apptainer)://(?P<x>[^\s\"'<>\[\]]+)", is_registry),
    rule("image", r"(?<![\w/:.@-])(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}(?::\d{2,5})?/(?:[\w.-]+/)*[\w.-]+(?::[a-z_v\d][\w.-]*|@sha256:[0-9a-f]+)(?![\w/])", is_registry),
    rule("mac", r"(?<![\w:-])(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![\w:-])"),
    rule("address", r"(?<![\w.])(?<!version )(?<!==)(?<!-)(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)", is_ip),
    rule("address", r"(?<![\w:.])[0-9a-f:]{6,39}(?:\.[\d.]{3,12})?(?:%\w+)?(?![\w:])", is_ip),
    rule("host", r"(?:--(?:nodelist|exclude)(?:\s+|=)|\b(?:node_?list|nodes?_?name|host_?name|batch_?host|exec_host|(?:host|server)(?==|\s*=))[\"']?" + IS + r")(?P<x>[a-z][\w.,-]*(?:\[[\d,-]+\])?[\w.,-]*)", is_name),
    rule("host", r"\b(?:host|server)[\"']?" + IS + r"(?P<x>[a-z][\w.-]*)", is_machine),
    rule("host", r"(?<![\w.@/-])[a-z][a-z-]{0,30}\d{0,4}\[(?:0\d+|\d+[-,]\d+)(?:[-,]\d+)*\](?:-?[a-z]\w*)?", lambda text: _is_node_list(text)),
    rule("host", r"\bON (?P<x>[a-z][\w.-]*) CANCELLED\b"),
    rule("host", r"\bslurmstepd-(?P<x>[\w.-]+):"),
    rule("host", r"(?<![\w.@/-])(?:[a-z0-9][a-z0-9-]*\.)+(?:local|localdomain|internal|intern|lan|cluster|hpc|intra|corp)\b(?!/)"),
    rule("host", r"(?<![\w.@/-])(?:[a-z]{1,12}-?)?(?:login|node|compute|gpu|cn|nid|cpu|head|mgmt|worker|bigmem|fat)[a-z]*-?\d+(?:-\d+)*(?:\.[a-z0-9-]+)+\b"),
    rule("host", r"(?<![\w.@/-])(?:login|node|compute|cn|nid|worker|bigmem)-?[a-z]?\d{2,}(?:-\d+)*(?![\w.-])"),
    # places
    rule("path", r"(?<![\w:/.<\]])/(?!" + _SYSTEM + r"(?:/|\b))(?:" + _PATH + r"+/)+(?:" + _PATH + r"*[\w}])?"),
    rule("path", r"(?<![\w:/.<\]])/" + _ROOTS + r"\w*(?:/" + _PATH + r"+)*(?!/)"),
    rule("path", r"(?<![\w.-])(?P<x>[\w.-]{1,255}:/(?:" + _PATH + r"+/)+(?:" + _PATH + r"*[\w}])?)"),
    rule("path", r"(?<![\w/])~[a-z_][\w.-]*(?:/" + _PATH + r"+)+|(?<![\w/])~(?:/" + _PATH + r"+)+"),
    rule("path", r"\b[a-z]:\\[^\s\"'<>|]+|\\\\[\w.-]+\\[^\s\"'<>|]+|\b[a-z]:/(?:users|documents)[^\s\"'<>|]+"),
    # environment
    exact("environment", r"\b(?:SLURM|SBATCH|PBS|LSB|SGE|SSH|AWS|AZURE|GOOGLE|KRB5?|CUDA|OMP|LD|XDG)_\w*=" + VALUE),
    exact("environment", r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+=" + VALUE, is_value),
    exact("environment", r"\b(?:USER|LOGNAME|HOME|HOSTNAME|PWD|PATH|TMPDIR|SHELL|MAIL|DISPLAY)=" + VALUE, is_value),
    rule("environment", r"\bexport\s+\w+=" + VALUE, is_value),
)  # fmt: skip


def _is_node_list(text: str) -> bool:
    """Padded numbers, or a name that nodes have; data[10-20] is none."""
    name, _, numbers = text.partition("[")
    known = ("node", "gpu", "cpu", "cn", "nid", "compute", "worker", "n", "c", "g", "r", "login")
    is_padded = any(
        part.startswith("0") and len(part) > 1 for part in numbers.replace(",", "-").split("-")
    )
    return is_padded or name.lower().rstrip("0123456789-") in known
