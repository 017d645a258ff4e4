"""What a store answers is told in a few words, with the setting that it is about."""

from __future__ import annotations

import pytest

from cdc_pipeline.lake.storage.store_answers import answer_of, refusal

# As the library words them around what real stores answer.
_PERFORMED = (
    "Generic S3 error: Error performing list request: Error performing GET "
    "http://store:9000/lakes?list-type=2 in 934.067µs - "
)
_ANSWERED = _PERFORMED + (
    'Server returned non-2xx status code: 403 Forbidden: <?xml version="1.0" encoding="UTF-8"?>\n'
    "<Error><Code>{code}</Code><Message>{message}</Message></Error>\n\nDebug source:\n..."
)


@pytest.mark.parametrize(
    ("code", "message", "told", "setting"),
    [
        (
            "InvalidAccessKeyId",
            "The key does not exist.",
            "InvalidAccessKeyId: The key does not exist.",
            "sink.storage.access_key_id",
        ),
        (
            "SignatureDoesNotMatch",
            "It differs.",
            "SignatureDoesNotMatch: It differs.",
            "sink.storage.secret_access_key",
        ),
        ("AccessDenied", "AccessDenied", "AccessDenied", "sink.storage"),
    ],
)
def test_a_refusal_names_its_setting(code: str, message: str, told: str, setting: str) -> None:
    text = _ANSWERED.format(code=code, message=message)
    assert answer_of(text) == told
    assert refusal(text)[0] == setting


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("HTTP error: error sending request", "HTTP error: error sending request"),
        (
            "Server returned non-2xx status code: 503 Service Unavailable: <html>",
            "503 Service Unavailable",
        ),
        (f"<Code>Slow</Code><Message>{'x' * 400}", "Slow: " + "x" * 191 + "..."),
    ],
)
def test_what_is_no_refusal_is_told_without_addresses_and_markup(rest: str, told: str) -> None:
    assert answer_of(_PERFORMED + rest) == told
