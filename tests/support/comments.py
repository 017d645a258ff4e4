"""Texts that a second language could read."""

TEXTS = (
    "it's",
    'say "x"',
    "back\\slash \\n \\u0041 \\",
    "${env:HOME} ${spark.app.name} {x} %s $x",
    "<b>&amp;</b> `t` [a](b)",
    "日本 \U0001f600 é",
    "a\nb\tc; -- /* */",
    "\u202e\ufffd\0",
    "'); DROP TABLE t; --",
)
