"""An S3 server for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.s3_server import S3Server, running_server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
