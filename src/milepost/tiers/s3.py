"""What only S3 has. Multipart uploads: the size of their parts, and those that a dead process left behind.

The parts of an upload that was neither completed nor aborted stay in the bucket, unseen and paid
for, until somebody aborts it.
"""

from __future__ import annotations

from typing import Any

S3 = ("s3", "s3a")
_PART_BYTES = 8 << 20
_MAX_PARTS = 9_000  # S3 takes 10,000


def part_bytes(protocol: str, size_bytes: int) -> int | None:
    """How much of a file of this size is sent at once; None where the protocol decides."""
    if protocol not in S3:
        return None
    return max(_PART_BYTES, -(-size_bytes // _MAX_PARTS))


def without_retries(protocol: str) -> dict[str, Any]:
    """Options of fsspec so that a library does not try again inside of our own tries."""
    return {"config_kwargs": {"retries": {"max_attempts": 0}}} if protocol in S3 else {}


def abort_uploads(fs: Any, start: str) -> list[str]:
    """Abort all unfinished uploads of objects below the path `start`; returns their paths.

    Does nothing where the file system has no such uploads, or its bucket is missing.
    """
    if not hasattr(fs, "list_multipart_uploads"):
        return []
    bucket, _, folder = start.partition("/")
    aborted = []
    for upload in _uploads(fs, bucket, f"{folder}/" if folder else ""):
        fs.call_s3("abort_multipart_upload", Bucket=bucket, **upload)
        aborted.append(f"{bucket}/{upload['Key']}")
    return sorted(aborted)


def _uploads(fs: Any, bucket: str, prefix: str) -> list[dict[str, str]]:
    """Key and UploadId of each unfinished upload, page by page."""
    found: list[dict[str, str]] = []
    marks: dict[str, str] = {}
    while True:
        try:
            page = fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **marks)
        except FileNotFoundError:
            return found
        found += [
            {"Key": upload["Key"], "UploadId": upload["UploadId"]}
            for upload in page.get("Uploads", ())
            if upload["Key"].startswith(prefix)
        ]
        if not page.get("IsTruncated"):
            return found
        marks = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
