"""An S3 server of its own for tests, spoken to over HTTP on this machine.

It is a process that ends when the test process lets go of its standard input.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SERVER = """
import logging, os, sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").disabled = True
app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True)
os.environ["MOTO_PORT"] = str(server.server_port)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
"""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@dataclass(frozen=True)
class S3Server:
    """A running server; `environment` is what a client needs to find it."""

    process: subprocess.Popen[str]
    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.endpoint}

    def new_bucket(self) -> str:
        """Make an empty bucket and return its URL."""
        name = f"bucket-{uuid.uuid4().hex}"
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}"

    def client(self) -> Any:
        """A client of another library than the one under test."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="tester",
            aws_secret_access_key="not-a-secret",
        )

    def stop(self) -> None:
        """End the server; what it held is gone."""
        self.process.kill()
        self.process.wait(20)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def start_server(folder: Path) -> S3Server:
    with (folder / "s3.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    if not port:
        process.wait(20)
        pytest.fail(f"the S3 server did not start: {(folder / 's3.log').read_text()[-500:]}")
    return S3Server(process, f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[S3Server]:
    """A server that this process finds in its environment."""
    from s3fs import S3FileSystem

    server = start_server(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("AWS_PROFILE", raising=False)
            for name, value in server.environment.items():
                patch.setenv(name, value)
            S3FileSystem.clear_instance_cache()
            yield server
    finally:
        S3FileSystem.clear_instance_cache()
        server.stop()
