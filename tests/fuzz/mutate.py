"""Damage to any file: bits, blocks, cuts and lies of headers; and damage below a checksum, which is then made right."""

import gzip
import io
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

SUMMED, ANY, REFUSE, WARN = "same or refused", "anything but a fault", "refused", "refused or warned of"
_ENDS = 600  # bytes at either end of a file, where headers and directories stand
_INTEGERS = (0, 1, 2, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
_WORDS = (
    *("", " ", "nan", "inf", "-1", "0", "2", "1e39", "1e400", "99999999999999999999", "0x10", "true", "null", "~", "é"),
    *('"', "'", ",", ";", "\t", "{", "[", "]", ":", "&a", "*a", "!!python/name:os.system", "2024-02-30", "2024-02-03"),
    *("..", "/etc/passwd", "con", "a ", "A", "\x00", "\ufeff", "\r", "--", "%s", "[" * 40, "x" * 200),
)


def damage(path: Path, rng: Random, *, text: bool, summed: bool) -> str:
    """Damage one file in place, in one to three ways; returns what must come of it."""
    if rng.random() < 0.03:
        rng.choice(_REPLACED)(path)
        return SUMMED if summed else ANY
    content = path.read_bytes()
    below = _below(path, content) if rng.random() < 0.4 else None
    if below is not None:
        path.write_bytes(below(_damaged, rng))
        return ANY
    changed, cut = content, False
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        way = rng.choice(_TEXT_WAYS if text and rng.random() < 0.7 else _WAYS)
        changed, cut = way(changed, rng), cut or way is _cut
    path.write_bytes(changed)
    return SUMMED if summed or (cut and not text and len(changed) < len(content)) else ANY


def _damaged(content: bytes, rng: Random) -> bytes:
    for _ in range(rng.choice((1, 1, 2))):
        content = rng.choice(_WAYS)(content, rng)
    return content


def _place(content: bytes, rng: Random) -> int:
    """A place in a file, mostly near its ends."""
    size = max(len(content), 1)
    span = min(size, _ENDS)
    at = rng.choice((rng.randrange(span), size - 1 - rng.randrange(span), rng.randrange(size)))
    return min(max(at, 0), max(len(content) - 1, 0))


def _span(content: bytes, rng: Random) -> tuple[int, int]:
    begin = _place(content, rng)
    return begin, min(len(content), begin + rng.choice((1, 4, 16, 64, 512)))


def _flip(content: bytes, rng: Random) -> bytes:
    if not content:
        return content
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 4, 16))):
        found[_place(content, rng)] ^= 1 << rng.randrange(8)
    return bytes(found)


def _zero(content: bytes, rng: Random) -> bytes:
    begin, end = _span(content, rng) if rng.random() < 0.7 else (len(content) // 2, len(content))
    return content[:begin] + bytes(end - begin) + content[end:]


def _cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.choice((0, 1, len(content) // 2, max(len(content) - 1, 0), _place(content, rng)))]


def _drop(content: bytes, rng: Random) -> bytes:
    begin, end = _span(content, rng)
    return content[:begin] + content[end:]


def _double(content: bytes, rng: Random) -> bytes:
    begin, end = _span(content, rng)
    return content[:end] + content[begin:end] + content[end:]


def _grow(content: bytes, rng: Random) -> bytes:
    return content + rng.choice((b"\0", b"\n", rng.randbytes(16), bytes(5000), content[:400]))


def _integer(content: bytes, rng: Random) -> bytes:
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice(_INTEGERS) % 2 ** (8 * width)
    at = _place(content, rng)
    return content[:at] + value.to_bytes(width, rng.choice(("little", "big"))) + content[at + width :]


def _float(content: bytes, rng: Random) -> bytes:
    value = rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e38, 1e-40))
    at = _place(content, rng) // 4 * 4
    return content[:at] + struct.pack(rng.choice("<>") + "f", value) + content[at + 4 :]


def _digits(content: bytes, rng: Random) -> bytes:
    """Another number in a header that is text, as those of NumPy, Zarr and JSON are."""
    found = list(re.finditer(rb"\d+", content[:4000]))
    if not found:
        return _flip(content, rng)
    one = rng.choice(found)
    new = rng.choice((b"0", b"-1", b"3", b"7", b"1000000000000", b"9" * 25, b"null", b'"x"', b"1.5", b"[]"))
    return content[: one.start()] + new + content[one.end() :]


def _word(content: bytes, rng: Random) -> bytes:
    """Another word in a text."""
    found = list(re.finditer(rb"[^\s,:;{}\[\]]+", content))
    if not found:
        return content
    one, new = rng.choice(found[:40] + found[-5:]), rng.choice(_WORDS).encode()
    return content[: one.start()] + new + content[one.end() :]


def _lines(content: bytes, rng: Random) -> bytes:
    """Lines of a text doubled, dropped, exchanged, or with other ends."""
    lines = content.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    way = rng.randrange(6)
    if way == 0:
        lines.insert(at, lines[other])
    elif way == 1:
        del lines[at]
    elif way == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif way == 3:
        lines[at] += rng.choice((b",", b",,", b"\t", b" ", b'"', b"\r"))
    elif way == 4:
        lines[at] = lines[at].replace(b",", rng.choice((b";", b"\t", b"", b",,")), 1)
    return (rng.choice((b"\r\n", b"\r")) if way == 5 else b"\n").join(lines)


def _bytes(content: bytes, rng: Random) -> bytes:
    """What is no UTF-8, or is more than a reader takes."""
    new = rng.choice(
        (b"\xff\xfe", b"\x00", b"\xc3", b"\xed\xa0\x80", b"x" * 140_000, b'"' + b"y" * 140_000, b"[" * 5000)
    )
    at = _place(content, rng)
    return content[:at] + new + content[at:]


_Way = Callable[[bytes, Random], bytes]
_WAYS: tuple[_Way, ...] = (_flip, _flip, _zero, _cut, _drop, _double, _grow, _integer, _integer, _float, _digits)
_TEXT_WAYS: tuple[_Way, ...] = (_word, _word, _word, _lines, _lines, _digits, _bytes)


def _remove(path: Path) -> None:
    path.unlink()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


_REPLACED = (_remove, _folder, _empty, _loop)


def _below(path: Path, content: bytes) -> Callable[[_Way, Random], bytes] | None:
    """How to damage what lies below the checksums of a file, which are then right; None where there are none."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        return lambda way, rng: _zipped(content, way, rng)
    if content[:2] == b"\x1f\x8b":
        return lambda way, rng: gzip.compress(way(gzip.decompress(content), rng), 1)
    if content[:4] == b"\x89PNG":
        return lambda way, rng: _chunked(content, way, rng)
    return None


def _zipped(content: bytes, way: _Way, rng: Random) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        infos = old.infolist()
        chosen = rng.randrange(len(infos))
        for number, info in enumerate(infos):
            part = old.read(info)
            new.writestr(info, way(part, rng) if number == chosen else part)
    return buffer.getvalue()


def _chunked(content: bytes, way: _Way, rng: Random) -> bytes:
    """A PNG of which one chunk is damaged, with the checksum of the new one."""
    found, at = [content[:8]], 8
    chunks = []
    while at + 8 <= len(content):
        (size,) = struct.unpack(">I", content[at : at + 4])
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += 12 + size
    chosen = rng.randrange(len(chunks))
    for number, (kind, part) in enumerate(chunks):
        data = way(part, rng) if number == chosen else part
        found.append(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    return b"".join(found)


def fresh_copy(sound: Path, folder: Path) -> Path:
    """A copy of a sound input, to be damaged."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder, symlinks=True)
    return folder
