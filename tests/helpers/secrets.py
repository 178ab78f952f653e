"""Private things as they stand in the inputs of a run, each of another kind and all invented.

Tokens are put together here from pieces, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """`text` as somebody writes it, and the words of it that must not be read anywhere."""

    text: str
    secrets: tuple[str, ...]


def _planted(text: str, *secrets: str) -> Planted:
    return Planted(text, secrets or (text,))


_MIXED = "q7Rz2LmXv9Kc4TnB8wYd3HsJ6fPg1Aeu"
_AWS = "wJ4lrX7UtnF3EMI/K7MDENG5bPxRf2iCYzQ9aL8x"
_KEY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ"

PLANTED: dict[str, Planted] = {
    "user name": _planted("files below /home/mkessler belong to mkessler", "mkessler"),
    "real name": _planted("Author: Miriam Kessler", "Kessler"),
    "real name of a mail": _planted("ulla.brandt@example.org, that is Ulla Brandt", "Brandt", "brandt"),
    "titled name": _planted("with help from Dr. Aurelia Windisch", "Windisch"),
    "host": _planted("host=fridolin7 was slow", "fridolin7"),
    "full host name": _planted("login3.hpc.uni-example.edu was slow", "login3", "uni-example"),
    "node list": _planted("on gpu[014-017]", "014-017"),
    "node list of srun": _planted("srun --nodelist=isar12,isar13 ./fit", "isar12", "isar13"),
    "partition": _planted("sbatch --partition=volta-long", "volta-long"),
    "queue": _planted("queue: bigmem_q", "bigmem_q"),
    "account": _planted("#SBATCH -A phys_ml17", "phys_ml17"),
    "QOS": _planted("--qos=urgent-mk", "urgent-mk"),
    "project": _planted("project: pn47xu", "pn47xu"),
    "reservation": _planted("--reservation=maint_kolloq", "maint_kolloq"),
    "home path below others": _planted("wrote /nfs/cluster/home/bhaas/x; bhaas did", "bhaas"),
    "home path": _planted("reads /home/tnagel/data/a.h5", "tnagel"),
    "scratch path": _planted("wrote /scratch2/grp_nagel/run1/out.dat", "grp_nagel"),
    "absolute path": _planted("see /fastio/vault77/x.log", "vault77"),
    "tilde path": _planted("look into ~owiesner/bin/fit", "owiesner"),
    "remote path": _planted("rsync isarnode:/vault/owk/x here", "owk"),
    "UNC path": _planted("\\\\filer09\\grpshare\\x.csv", "filer09", "grpshare"),
    "Windows path": _planted("C:\\Users\\hpohl\\fit.py", "hpohl"),
    "domain account": _planted("signed in as INSTITUT\\hpohl2", "hpohl2"),
    "job id": _planted("Submitted batch job 7741523", "7741523"),
    "array id": _planted("failed in 7751524_14", "7751524"),
    "PBS id": _planted("qdel 661524.pbs01", "661524"),
    "mail": _planted("write to g.hartwig+hpc@phys.example.ac.uk", "hartwig"),
    "IPv4": _planted("peer 10.23.44.17:6817", "10.23.44.17"),
    "IPv6": _planted("peer 2001:db8:7::9a1", "2001:db8:7"),
    "MAC": _planted("link 52:54:00:ab:17:9e", "52:54:00:ab:17:9e"),
    "URL with credentials": _planted("https://svc:pa55w0rd@data.example.org/x", "pa55w0rd"),
    "AWS key id": _planted("AKIA" + "Q3EGRXN7TL2VWZ4K"),
    "AWS secret": _planted(f"aws_secret_access_key = {_AWS}", _AWS),
    "AWS secret without a label": _planted(f"use {_AWS} there", _AWS),
    "GCP key": _planted("AIza" + "SyD3x7Kq9LmN2pR5tV8wZ1bC4eF6gH0jK"),
    "GCP token": _planted("ya29." + "a0AfH6SMBx7q9LmN2pR5tV8w"),
    "Azure storage key": _planted(f"AccountName=labdata;AccountKey={_MIXED}+/{_MIXED}==", _MIXED),
    "Azure signature": _planted(f"https://x.blob.example.net/c?sv=2024&sig={_MIXED}%3D", _MIXED),
    "GitHub token": _planted("ghp_" + _MIXED + "wXyZ"),
    "GitLab token": _planted("glpat-" + _MIXED[:20]),
    "Slack token": _planted("xoxb-" + "210987654321-" + _MIXED),
    "Slack hook": _planted("https://hooks.slack.com/services/T0A/B0C/" + _MIXED, _MIXED),
    "Hugging Face token": _planted("hf_" + _MIXED),
    "OpenAI token": _planted("sk-proj-" + _MIXED),
    "Anthropic token": _planted("sk-ant-api03-" + _MIXED),
    "PyPI token": _planted("pypi-AgE" + "IcHlwaS5vcmcC" + _MIXED),
    "npm token": _planted("npm_" + _MIXED + "0z9Y"),
    "Stripe key": _planted("sk_live_" + _MIXED[:24]),
    "JWT": _planted("eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiI0NzExIn0." + "c2lnbmF0dXJlMTIz"),
    "bearer header": _planted(f"Authorization: Bearer {_MIXED}", _MIXED),
    "basic auth": _planted("Authorization: Basic " + "c3ZjOnBhNTV3MHJk", "c3ZjOnBhNTV3MHJk"),
    "basic auth of curl": _planted("curl -u svc:tRu5tno1 example.org", "tRu5tno1"),
    "private key": _planted(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{_KEY}\n-----END OPENSSH PRIVATE KEY-----", _KEY
    ),
    "age key": _planted("AGE-SECRET-KEY-1" + "QXJ4T7Y2M9K3V8W5Z6R0PLNH" * 2),
    "SSH key with its comment": _planted(
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPq7Rz2LmXv9 lschwarz@notebook4", "IPq7Rz2", "lschwarz"
    ),
    "password of a command": _planted("fit --db-password Zw1ebel77", "Zw1ebel77"),
    "password of mysql": _planted("mysql -u svc -pZw1ebel78 lab", "Zw1ebel78"),
    "password of sshpass": _planted("sshpass -p Zw1ebel79 ssh x", "Zw1ebel79"),
    "password in the environment": _planted("LAB_DB_PASSWORD='ge heim80'", "ge heim80"),
    "password in prose": _planted("the password is Zw1ebel81", "Zw1ebel81"),
    "password hash": _planted("$6$" + "Jd8sKq2L$" + _MIXED, _MIXED),
    "database URL": _planted("postgres://lab:Zw1ebel82@dbpost5.example.org/runs", "Zw1ebel82", "dbpost5"),
    ".netrc": _planted("machine git5.example.org login svc password Zw1ebel83", "Zw1ebel83", "git5"),
    "key in a query": _planted("https://api.example.org/v1?api_key=k9f2m4x7q1", "k9f2m4x7q1"),
    "cookie": _planted("Cookie: sessionid=s8d7f6g5h4; theme=dark", "s8d7f6g5h4"),
    "license server": _planted("LM_LICENSE_FILE=27000@lizenz2", "lizenz2"),
    "Kerberos principal": _planted("kinit rvogel@HPC.EXAMPLE.ORG", "rvogel"),
    "ORCID": _planted("0000-0002-1825-0097"),
    "phone": _planted("call +49 89 5551 7720", "89 5551", "5551 7720"),
    "US phone": _planted("call (415) 555-2671", "555-2671"),
    "grant": _planted("grant agreement No 101034413", "101034413"),
    "grant of the DFG": _planted("Grant DFG KE-2231/4-1", "KE-2231"),
    "UUID": _planted("device GPU-8f14e45f-ceea-467f-a0e6-9d3c1b7a2f55", "8f14e45f"),
    "image": _planted("docker://registry.lab.example/grpx/md:2024.1", "registry.lab", "grpx"),
    "image without a scheme": _planted("registry.lab.example:5000/grpy/md:2024.1", "grpy"),
    "git remote": _planted("git@gitlab.lab.example:grpz/md.git", "grpz"),
    "git remote by https": _planted("https://gitlab.lab.example/grpw/md.git", "grpw"),
    "bucket": _planted("s3://lab-bucket-x/runs/1", "lab-bucket-x"),
    "account of a job": _planted("SLURM_JOB_ACCOUNT=phys_ml18", "phys_ml18"),
    "environment value": _planted("LAB_MODEL_DIR=modelle77", "modelle77"),
    "exported value": _planted("export CACHE=kiste99", "kiste99"),
    "W&B key": _planted("WANDB_API_KEY=" + "0a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6e7f8a9b"),
    "docker config": _planted('{"auth": "' + "c3ZjOnBhNTV3MHJkMg==" + '"}', "c3ZjOnBhNTV3MHJkMg"),
}  # fmt: skip

CREDENTIALS = (
    "URL with credentials", "AWS key id", "AWS secret", "AWS secret without a label", "GCP key",
    "GCP token", "Azure storage key", "Azure signature", "GitHub token", "GitLab token",
    "Slack token", "Slack hook", "Hugging Face token", "OpenAI token", "Anthropic token",
    "PyPI token", "npm token", "Stripe key", "JWT", "bearer header", "basic auth",
    "basic auth of curl", "private key", "age key", "password of a command", "password of mysql",
    "password of sshpass", "password in the environment", "password in prose", "password hash",
    "database URL", ".netrc", "key in a query", "cookie", "W&B key", "docker config",
)  # fmt: skip
"""Those of them that no record may hold, private or not."""

PROSE = [
    "We used scikit-learn 1.4.2 and Python 3.11 for 1,234 tasks in 12:34:56 on ~10 % of the data.",
    "See https://scikit-learn.org/stable/modules/svm.html and doi:10.1000/xyz123.",
    "Energy -1.5 kJ/mol/nm; results in results/dock/artifacts; ratio a:b:c; and/or.",
    "A basic understanding of basic thermodynamics; Basic Thermodynamics2; bearer instruments.",
    "The grant total was 12; PW basis, pw = 3, cutoff PW=500eV; key: temperature_of_the_bath.",
    "Aspirin CC(=O)OC1=CC=CC=C1C(=O)O, CAS 50-78-2, InChIKey BSYNRYMUTXBXSQ-UHFFFAOYSA-N.",
    "1-(2-chlorophenyl)-N-methyl-N-(1-methylpropyl)-3-isoquinolinecarboxamide binds TSPO.",
    "Core-shell Au@TiO2, Fe3O4@SiO2 and Pd@UIO-66; host-guest ratio; host: cucurbituril.",
    "Commit 543e141 (543e14120f7d8c5f5f8a0d9d6c1a7be2e34f5a6b) fixed it; GROMACS 2023.3.",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 is empty.",
    "doi:10.1021/acs.jctc.9b01234, arXiv:2410.21680v2, PDB 1ABC, UniProt P04637, ISBN 978-3-16-148410-0.",
    "Spack spec gromacs@2023.3 %gcc@12.2.0 +cuda; recall@10 = 0.9, hits@k, precision@k.",
    "$N\\times M$ matrices, $H\\psi = E\\psi$; 95% CI [0.1, 0.3]; p < 0.05; x[0], data[10-20].",
    "Partition: train/test 80/20; the partition function Z; queue of tasks; account of errors.",
    "Version 1.2.3.4 of the force field, v10.0.0.1, and numpy==1.26.4; 10.5281/zenodo.1234567.",
    "Peptide MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQARAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQ.",
    "Mean 3.14e-05 ± 1.2e-06 at 298.15 K and 1.013 bar, +12.5 % over 20240115_1200.",
    "The root mean square error is 0.1; passed: 12 tests; compass: north; N=100, AUC=0.98.",
    "512 tokens: 4096; tokenizer=bert; password: null; token: ${TOKEN}; key: value.",
    "2026-01-01T00:00:00Z took 3600 s; accounts for 5 %; hf_energy_convergence_threshold.",
    "#!/usr/bin/env python3 > /dev/null 2>&1; /proc/cpuinfo; </div>",
    "interrupted by preemption 3 times; host memory 12 GB; job array of 100 tasks",
    "127.0.0.1 and ::1 are this machine; std::vector<int>; a::b",
    "blake3:1f3a9c and sha256:00ff; F1 = 0.98; step: 1200; C=10 gamma=0.1",
    "The B3LYP/6-31G(d,p) level; 6-311++G**; cc-pVTZ; wB97X-D3; Lennard-Jones 12-6.",
    "See https://matplotlib.org/stable/users/installing/index.html; installing is easy.",
    "A well-tested project: the overall design is solid; queue: a list; user = the reader.",
    "uses: astral-sh/ruff-action@v3 and rdflib@main; the classic @attr.s and attr.ib APIs.",
    "Thanks to Monte Carlo sampling, Metropolis Hastings moves need no password, as stated.",
]
"""What scientists write and nobody need hide."""
