"""What only S3 has. Multipart uploads: the size of their parts, and those that a dead process left behind.

The parts of an upload that was neither completed nor aborted stay in the bucket, unseen and paid
for, until somebody aborts it.
"""

from __future__ import annotations

from typing import Any

S3 = ("s3", "s3a")
_PART_BYTES = 8 << 20
_COPY_BYTES = 1 << 30  # S3 copies 5 GiB at once at most
_MAX_PARTS = 9_000  # S3 takes 10,000


def part_bytes(protocol: str, size_bytes: int) -> int | None:
    """How much of a file of this size is sent at once; None where the protocol decides."""
    if protocol not in S3:
        return None
    return max(_PART_BYTES, -(-size_bytes // _MAX_PARTS))


def without_retries(protocol: str) -> dict[str, Any]:
    """Options of fsspec so that a library does not try again inside of our own tries."""
    return {"config_kwargs": {"retries": {"max_attempts": 0}}} if protocol in S3 else {}


def replace_head(fs: Any, path: str, head: bytes, size_bytes: int) -> None:
    """Make the object anew out of `head` and of itself; S3 copies all but its first 8 MiB.

    The object is the old one until the last call, which makes it the new one.
    """
    bucket, _, key = path.partition("/")
    first = fs.cat_file(path, start=0, end=min(size_bytes, _PART_BYTES))
    first = head + first[len(head) :]
    if size_bytes <= _PART_BYTES:
        fs.pipe_file(path, first)
        return
    place = {"Bucket": bucket, "Key": key}
    place["UploadId"] = fs.call_s3("create_multipart_upload", **place)["UploadId"]
    try:
        done = fs.call_s3("upload_part", PartNumber=1, Body=first, **place)
        parts = [{"PartNumber": 1, "ETag": done["ETag"]}]
        for start in range(_PART_BYTES, size_bytes, _COPY_BYTES):
            end, number = min(start + _COPY_BYTES, size_bytes), len(parts) + 1
            source = {"CopySource": path, "CopySourceRange": f"bytes={start}-{end - 1}"}
            done = fs.call_s3("upload_part_copy", PartNumber=number, **source, **place)
            parts.append({"PartNumber": number, "ETag": done["CopyPartResult"]["ETag"]})
        fs.call_s3("complete_multipart_upload", MultipartUpload={"Parts": parts}, **place)
    except BaseException:
        fs.call_s3("abort_multipart_upload", **place)
        raise
    fs.invalidate_cache(path)


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
