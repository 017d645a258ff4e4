"""Object stores are an extra of the package."""

from __future__ import annotations

import sys

import pytest

from cdc_pipeline.config.storage_config import StorageConfig
from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.storage.object_storage import ObjectStorage


@pytest.mark.parametrize(("scheme", "extra"), [("s3a", "s3"), ("abfss", "azure"), ("gs", "gcs")])
def test_without_its_extra_an_object_store_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, scheme: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(RuntimeSetupError) as raised:
        ObjectStorage(scheme, "bucket", StorageConfig())
    assert raised.value.next_step == f"pip install 'cdc-pipeline[{extra}]'"
