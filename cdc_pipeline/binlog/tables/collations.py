"""Collation ids of the binlog and their charsets.

Rules:
- One table serves both flavors: an id that both know has the same charset.
- MariaDB's "nopad" collations are the plain ids + 1024; its UCA 14.0.0 collations (10.10 and newer)
  begin at 2048.

Source: MySQL 9.7 information_schema.COLLATIONS, MariaDB 10.11
information_schema.COLLATION_CHARACTER_SET_APPLICABILITY; the tests compare it with the servers.
"""

from __future__ import annotations

from typing import Final

BINARY_COLLATION: Final = 63

# charset: (bytes of its longest character, ids and ranges of ids)
_CHARSETS: Final[dict[str, tuple[int, str]]] = {
    "armscii8": (1, "32 64 1056 1088"),
    "ascii": (1, "11 65 1035 1089"),
    "big5": (2, "1 84 1025 1108"),
    "binary": (1, "63"),
    "cp1250": (1, "26 34 44 66 99 1050 1090"),
    "cp1251": (1, "14 23 50-52 1074-1075"),
    "cp1256": (1, "57 67 1081 1091"),
    "cp1257": (1, "29 58-59 1082-1083"),
    "cp850": (1, "4 80 1028 1104"),
    "cp852": (1, "40 81 1064 1105"),
    "cp866": (1, "36 68 1060 1092"),
    "cp932": (2, "95-96 1119-1120"),
    "dec8": (1, "3 69 1027 1093"),
    "eucjpms": (3, "97-98 1121-1122"),
    "euckr": (2, "19 85 1043 1109"),
    "gb18030": (4, "248-250"),
    "gb2312": (2, "24 86 1048 1110"),
    "gbk": (2, "28 87 1052 1111"),
    "geostd8": (1, "92-93 1116-1117"),
    "greek": (1, "25 70 1049 1094"),
    "hebrew": (1, "16 71 1040 1095"),
    "hp8": (1, "6 72 1030 1096"),
    "keybcs2": (1, "37 73 1061 1097"),
    "koi8r": (1, "7 74 1031 1098"),
    "koi8u": (1, "22 75 1046 1099"),
    "latin1": (1, "5 8 15 31 47-49 94 1032 1071"),
    "latin2": (1, "2 9 21 27 77 1033 1101"),
    "latin5": (1, "30 78 1054 1102"),
    "latin7": (1, "20 41-42 79 1065 1103"),
    "macce": (1, "38 43 1062 1067"),
    "macroman": (1, "39 53 1063 1077"),
    "sjis": (2, "13 88 1037 1112"),
    "swe7": (1, "10 82 1034 1106"),
    "tis620": (1, "18 89 1042 1113"),
    "ucs2": (2, "35 90 128-151 159 640-642 1059 1114 1152 1174 2560-2727 2744-2759"),
    "ujis": (3, "12 91 1036 1115"),
    "utf16": (4, "54-55 101-124 672-674 1078-1079 1125 1147 2816-2983 3000-3015"),
    "utf16le": (4, "56 62 1080 1086"),
    "utf32": (4, "60-61 160-183 736-738 1084-1085 1184 1206 3072-3239 3256-3271"),
    "utf8mb3": (3, "33 76 83 192-215 223 576-578 1057 1107 1216 1238 2048-2215 2232-2247"),
    "utf8mb4": (
        4,
        "45-46 224-247 255-271 273-275 277-294 296-298 300 303-323 608-610 1069-1070 1248 1270 "
        "2304-2471 2488-2503",
    ),
}


def _by_id() -> dict[int, str]:
    table = {}
    for charset, (_, ranges) in _CHARSETS.items():
        for part in ranges.split():
            first, _, last = part.partition("-")
            table.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return table


CHARSET_BY_COLLATION: Final = _by_id()
CHARACTER_BYTES_MAX: Final = {charset: longest for charset, (longest, _) in _CHARSETS.items()}
