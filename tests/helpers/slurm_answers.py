"""Recorded answers in place of Slurm's commands, for tests without a Slurm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from milepost.slurm.command import Said

Answer = str | tuple[int, str, str] | Exception


@dataclass
class Recorded:
    """Answers by the first words of a command; several for the same words come one after the other.

    An answer is stdout, or (exit code, stdout, stderr), or an exception to raise.
    """

    answers: Mapping[str, Answer | list[Answer]]
    asked: list[tuple[str, ...]] = field(default_factory=list)
    environments: list[Mapping[str, str]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> Said:
        self.asked.append(tuple(argv))
        self.environments.append(environ)
        words = " ".join(argv)
        fitting = [key for key in self.answers if words.startswith(key)]
        if not fitting:
            raise FileNotFoundError(2, "No such file or directory")
        answer = self.answers[max(fitting, key=len)]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        code, out, err = (0, answer, "") if isinstance(answer, str) else answer
        return Said(tuple(argv), code, out, err)
