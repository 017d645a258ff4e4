"""``python -m tools.log_store``: compile the log stores into the jar that the package ships.

Needs a JDK of version 17 or newer, and Delta's jars in the cache. The jar says which sources it was
made from; a test compares.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

from cdc_pipeline.sink.spark.jars import jar_paths
from cdc_pipeline.sink.spark.session import LOG_STORE_JAR as JAR

SOURCES = sorted(JAR.parent.glob("*LogStore.java"))
SOURCE_ENTRY = "META-INF/source.sha256"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def source_digest() -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()


def recorded_digest(jar: Path) -> str:
    with zipfile.ZipFile(jar) as opened:
        return opened.read(SOURCE_ENTRY).decode().strip()


def main() -> int:
    jars = [*jar_paths(), *(Path(pyspark.__file__).parent / "jars").glob("*.jar")]
    with tempfile.TemporaryDirectory() as folder:
        path = ":".join(map(str, jars))
        command = ["javac", "--release", "17", "-g:none", "-classpath", path, "-d", folder]
        subprocess.run([*command, *map(str, SOURCES)], check=True)
        classes = sorted(Path(folder).rglob("*.class"))
        content = {one.relative_to(folder).as_posix(): one.read_bytes() for one in classes}
        content[SOURCE_ENTRY] = f"{source_digest()}\n".encode()
        with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as jar:
            for name, data in sorted(content.items()):
                jar.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    print(f"{JAR}: {len(content)} files, {JAR.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
