"""Turn a command that needs a shell into a bash script whose values come as arguments."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.config.template import Field, Piece, unique_names


def make_script(pieces: Sequence[Piece], where: object = None) -> str:
    """The script; its arguments are the values of the fields in the order of first use."""
    names = {name: at for at, name in enumerate(unique_names(pieces), start=1)}
    text, quote, escaped = "", "", False
    for piece in pieces:
        if isinstance(piece, Field):
            at = names[piece.name]
            text += {"": f'"${{v{at}}}"', '"': f"${{v{at}}}", "'": f"'\"${{v{at}}}\"'"}[quote]
            continue
        text += piece
        if not escaped and piece in ("'", '"') and quote in ("", piece):
            quote = "" if quote else piece
        escaped = piece == "\\" and not escaped and quote != "'"
    keep = " ".join(f"v{at}=${{{at}}}" for at in names.values())
    return f"{keep}; set --\n{text}" if names else text
