"""Damage files: bytes of any file, and the structure of those whose format is known. Drawn from a seeded generator.

`mutate(folder, draw)` damages one to three places in the files of a folder and says how. A mutation of the structure
(a JSON value of another type, a header with another length, a hostile member of an archive) is what somebody would do
on purpose; one of the bytes is what a disk, a network or an editor does.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import pickle
import random
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

# fmt: off
WHOLE = (
    0, 1, -1, 2, 7, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**53 + 1, 2**62,
    2**63 - 1,
)
# fmt: on
HUGE = (2**63, 2**64 - 1, 10**18, -(10**18), 10**30)
# fmt: off
NUMBERS = (
    "0", "-1", "1", "3", "65536", "2147483647", "4294967296", "9223372036854775807", "9" * 40, "9" * 5000, "1e308",
    "-1e308", "1e309", "1e-320", "nan", "NaN", "inf", "-Infinity", "0x10", "1_000", "١٢", "½", "1,5", "--1", ".",
    "1e",
)
# fmt: on
# fmt: off
STRINGS = (
    "", " ", "a", "\0", "\ufeff", "\u2028", "\u202e", "\r", "\x1b[31m", "<unk>", "<s>", "</s>", "[MASK]",
    "../../../../etc/passwd", "/dev/zero", "/dev/stdin", "-", ".", "..", "~", "%s%n", "{0}", "${HOME}", "[[bold]]",
    "[/red]", "\U0010ffff", "e\u0301" * 50, "long " * 20_000, "x" * 100_000, "\n" * 500, "starter/bert", "bible",
    "tasks:sst2", "float32", "int8", "true",
)
# fmt: on
# fmt: off
LINES = (
    b"", b" ", b"\t", b"\0", b"\xff\xfe\xfd", b"\xed\xa0\x80", b"\xc3", b"\r", b"\x0c", b'"', b'"unclosed',
    b"a,b,c,d,e,f,g,h", b"\t\t\t\t\t\t\t", b"{", b"}", b"[]", b"null", b"-DOCSTART- -X- O O", b"\\data\\",
    b"\\end\\", b"\\2-grams:", b"# text = x", b"1-2\tx", b"<doc id=", b"</doc>", b" = x = ", b"<|endoftext|>",
    b"[[phase]]", b"[a.b.c]", b"((((", b"))))", b"x" * 200_000,
)
# fmt: on
DEPTH = 20_000  # of nested brackets: beyond Python's recursion limit


# ------------------------------------------------------------------------------------------------ bytes


def _place(data: bytes, draw: random.Random) -> int:
    """A position; often near the start, where headers are, or near the end."""
    size = len(data)
    kind = draw.random()
    if kind < 0.35:
        return draw.randrange(min(size, 256) + 1)
    return size - draw.randrange(min(size, 64) + 1) if kind < 0.45 else draw.randrange(size + 1)


def _span(data: bytes, draw: random.Random) -> tuple[int, int]:
    begin = _place(data, draw)
    return begin, min(len(data), begin + int(2 ** draw.uniform(0, 13)))


def flip_bit(data: bytes, draw: random.Random) -> bytes:
    at = min(_place(data, draw), len(data) - 1)
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :] if data else b"\1"


def set_bytes(data: bytes, draw: random.Random) -> bytes:
    begin, end = _span(data, draw)
    end = min(end, begin + 16)
    return (
        data[:begin] + bytes([draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))]) * (end - begin) + data[end:]
    )


def truncate(data: bytes, draw: random.Random) -> bytes:
    return data[: _place(data, draw)]


def delete_block(data: bytes, draw: random.Random) -> bytes:
    begin, end = _span(data, draw)
    return data[:begin] + data[end:]


def repeat_block(data: bytes, draw: random.Random) -> bytes:
    begin, end = _span(data, draw)
    return data[:end] + data[begin:end] * draw.choice((1, 1, 2, 50)) + data[end:]


def zero_block(data: bytes, draw: random.Random) -> bytes:
    begin, end = _span(data, draw)
    return data[:begin] + bytes(end - begin) + data[end:]


def insert_noise(data: bytes, draw: random.Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + draw.randbytes(int(2 ** draw.uniform(0, 10))) + data[at:]


def splice(data: bytes, draw: random.Random) -> bytes:
    """Copy a block over another place."""
    begin, end = _span(data, draw)
    at = _place(data, draw)
    return data[:at] + data[begin:end] + data[at + end - begin :]


def grow(data: bytes, draw: random.Random) -> bytes:
    return data + draw.choice((b"\0", b"\n", b"\0" * 5000, b"\xff" * 64, draw.randbytes(1000), data))


def replace_all(data: bytes, draw: random.Random) -> bytes:
    return draw.choice(
        (
            b"",
            b"\0",
            b"\n",
            b"{}",
            b"[]",
            b"null",
            b"\0" * 10_000,
            draw.randbytes(500),
            b"\x1f\x8b\x08",
            b"PK\3\4",
            b"[" * DEPTH,
        )
    )


def patch_integer(data: bytes, draw: random.Random) -> bytes:
    """Write an extreme integer or float where a size, an offset or a weight may be."""
    kind = draw.choice(["<i", "<q", "<I", "<Q", "<f", "<d", ">I", "<H", "<B"])
    size = struct.calcsize(kind)
    at = max(0, min(_place(data, draw), len(data) - size))
    at -= at % draw.choice((1, 4, 8, 8))
    if kind[1] in "fd":
        value: Any = draw.choice((0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e38, -1e38, 1e-40))
        return data[:at] + struct.pack(kind, value) + data[at + size :]
    value = draw.choice((*WHOLE, *HUGE, len(data), len(data) - 1, len(data) + 1, draw.getrandbits(64)))
    return (
        data[:at] + (value % (1 << 8 * size)).to_bytes(size, "little" if kind[0] == "<" else "big") + data[at + size :]
    )


BYTES: tuple[Mutation, ...] = (
    *(flip_bit, flip_bit, set_bytes, truncate, delete_block, repeat_block, zero_block),
    *(insert_noise, splice, grow, replace_all, patch_integer),
)


# ------------------------------------------------------------------------------------------------ lines


def mutate_lines(data: bytes, draw: random.Random) -> bytes:
    """Delete, repeat, exchange or replace lines."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    kind = draw.randrange(9)
    if kind == 0:
        del lines[at : at + draw.choice((1, 1, 2, 10))]
    elif kind == 1:
        lines[at:at] = [lines[at]] * draw.choice((1, 2, 1000))
    elif kind == 2:
        other = draw.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        lines.insert(at, draw.choice(LINES))
    elif kind == 4:
        lines[at] = draw.choice(LINES)
    elif kind == 5:
        draw.shuffle(lines)
    elif kind == 6:
        lines[at] = lines[at] + lines[min(at + 1, len(lines) - 1)]
    elif kind == 7:
        cut = draw.randrange(len(lines[at]) + 1)
        lines[at : at + 1] = [lines[at][:cut], lines[at][cut:]]
    else:
        return draw.choice((b"\r\n", b"\r", b"\n\n", b"")).join(lines)
    return b"\n".join(lines)


def mutate_cells(data: bytes, draw: random.Random) -> bytes:
    """Delete, add, repeat or replace cells of a line."""
    lines = data.split(b"\n")
    at = draw.choice((0, draw.randrange(len(lines)), draw.randrange(len(lines))))
    marks = [mark for mark in (b"\t", b",", b" ", b"=", b"|") if mark in lines[at]] or [b" "]
    mark = draw.choice(marks)
    cells = lines[at].split(mark)
    i = draw.randrange(len(cells))
    kind = draw.randrange(6)
    if kind == 0:
        del cells[i]
    elif kind == 1:
        cells.insert(i, draw.choice((*NUMBERS, *STRINGS)).encode("utf-8", "surrogatepass"))
    elif kind == 2:
        cells[i] = draw.choice(STRINGS).encode("utf-8", "surrogatepass")
    elif kind == 3:
        cells[i] = draw.choice(NUMBERS).encode()
    elif kind == 4:
        cells[i:i] = [cells[i]] * draw.choice((1, 5, 1000))
    else:
        cells[i] = draw.choice(
            (b'"' + cells[i], b'"' + cells[i] + b'"', b'""' + cells[i], cells[i][::-1], b"\xff" + cells[i])
        )
    lines[at] = mark.join(cells)
    return b"\n".join(lines)


_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e-?\d+)?")


def mutate_number(data: bytes, draw: random.Random) -> bytes:
    """Replace a number in text by a huge, negative or malformed one."""
    places = list(_NUMBER.finditer(data[:1_000_000]))
    if not places:
        return mutate_cells(data, draw)
    place = draw.choice(places[:40] if draw.random() < 0.4 else places)
    return data[: place.start()] + draw.choice(NUMBERS).encode() + data[place.end() :]


def change_encoding(data: bytes, draw: random.Random) -> bytes:
    text = data.decode("utf-8", "replace")
    kind = draw.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "cp037", "gb18030", "half"))
    if kind == "half":
        return text[: len(text) // 2].encode() + text[len(text) // 2 :].encode("utf-16")
    return text.encode(kind, "replace")


def nest(data: bytes, draw: random.Random) -> bytes:
    """Insert thousands of nested brackets."""
    at = _place(data, draw)
    open_, close = draw.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"[{", b"}]"), (b'"', b'"')))
    return data[:at] + open_ * DEPTH + draw.choice((b"", b"1", b"1" + close * DEPTH)) + data[at:]


TEXT: tuple[Mutation, ...] = (
    mutate_lines,
    mutate_lines,
    mutate_cells,
    mutate_cells,
    mutate_number,
    mutate_number,
    change_encoding,
    nest,
)


# ------------------------------------------------------------------------------------------------ JSON


def _json_value(draw: random.Random, old: object) -> Any:
    if isinstance(old, list) and old and draw.random() < 0.4:
        return draw.choice((old[:-1], old + old[-1:], old * 1000 if len(old) < 50 else old * 2, old[::-1], [old]))
    if isinstance(old, (int, float)) and not isinstance(old, bool) and draw.random() < 0.5:
        return draw.choice(
            (old + 1, old - 1, -old, old * 2, old * 1000, old * 10**6, old / 2, float(old), str(old), bool(old))
        )
    if isinstance(old, str) and draw.random() < 0.3:
        return draw.choice((old[:-1], old + "x", old.upper(), old * 3, f" {old} "))
    scalar = draw.choice((*WHOLE, *HUGE, 0.5, -0.5, 1e308, float("nan"), float("inf"), *STRINGS, None, True, False))
    return draw.choice((scalar, scalar, scalar, [], {}, [[]], [scalar], {"a": scalar}, [None, scalar, "x"], {"": {}}))


def mutate_tree(tree: Any, draw: random.Random) -> Any:
    """Replace, delete, repeat, rename or exchange one node of nested lists and dictionaries."""
    places: list[tuple[Any, Any]] = []

    def collect(node: Any, depth: int = 0) -> None:
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys if len(keys) < 60 else draw.sample(list(keys), 60):
            places.append((node, key))
            if depth < 40:
                collect(node[key], depth + 1)

    collect(tree)
    if not places or draw.random() < 0.03:
        return _json_value(draw, tree)
    shallow = places[:12]
    node, key = draw.choice(shallow if draw.random() < 0.3 else places)
    kind = draw.randrange(8)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[draw.choice((str(key) + "x", "", *STRINGS[:20]))] = node.pop(key)
    elif kind == 1:
        node.insert(draw.randrange(len(node) + 1), _json_value(draw, node[key]))
    elif kind == 2:
        other, there = draw.choice(places)
        if key in node if isinstance(node, dict) else key < len(node):
            node[key], other[there] = json.loads(json.dumps(other[there])), json.loads(json.dumps(node[key]))
    elif kind == 3 and isinstance(node, dict):
        node[draw.choice(("unknown", "", "__class__", "files", "kind", "data"))] = _json_value(draw, node[key])
    else:
        node[key] = _json_value(draw, node[key])
    return tree


def mutate_json(data: bytes, draw: random.Random) -> bytes:
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return draw.choice(TEXT)(data, draw)
    if draw.random() < 0.1:
        return _json_text(data, draw)
    text = json.dumps(mutate_tree(tree, draw), ensure_ascii=draw.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def _json_text(data: bytes, draw: random.Random) -> bytes:
    """Damage that a tree cannot have: repeated keys, lone surrogates, deep nesting, other text around it."""
    at = data.find(b":", _place(data, draw)) + 1
    deep = draw.choice((b"[" * DEPTH, b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH))
    return draw.choice(
        (
            data[:at] + deep + b"," + data[at:],
            data[:at] + b'"\\ud800"' + data[at:],
            data[:at] + b" NaN " + data[at:],
            b"{" + data[1:].split(b",")[0] + b"," + data[1:],
            data + data,
            b"\xef\xbb\xbf" + data,
            data.decode("utf-8", "replace").encode("utf-16"),
            deep,
        )
    )


def mutate_json_lines(data: bytes, draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = mutate_json(lines[at], draw).replace(b"\n", b"")
    return b"\n".join(lines)


# ------------------------------------------------------------------------------------------------ TOML

# fmt: off
TOML_VALUES = (
    "0", "-1", "1", "3", "1e308", "nan", "inf", "-inf", "9223372036854775807", "99999999999999999999", "true", "[]",
    '""', '"x"', "{}", "[[]]", '["a", 1]', "{ kind = 1 }", '{ kind = "x" }', "1979-05-27T07:32:00Z", '"\\u0000"',
    "'''a'''", '"../../../etc/passwd"', '"/dev/zero"', "[" * 3000 + "]" * 3000, '"' + "x" * 100_000 + '"',
    "1000000000", "65536",
)
# fmt: on
_ASSIGNMENT = re.compile(rb"(?m)^([ \w\"'-]+)=(.*)$")
_INNER = re.compile(rb"(\w+) = ([^,{}\[\]\n]+)")


def mutate_toml(data: bytes, draw: random.Random) -> bytes:
    """Give a key another value, rename, repeat or delete it, or do the same to a table."""
    pattern = _INNER if draw.random() < 0.5 else _ASSIGNMENT
    places = list(pattern.finditer(data))
    kind = draw.randrange(7)
    if not places or kind == 0:
        return draw.choice((mutate_lines, mutate_number))(data, draw)
    place = draw.choice(places)
    name, value = place[1], place[2]
    if kind == 1:
        new = name + draw.choice((b"x", b"", b".a", b" . b")) + b" = " + value
    elif kind == 2:
        new = b""
    elif kind == 3:
        new = draw.choice(places)[1] + b" = " + value
    else:
        new = name + b" = " + draw.choice(TOML_VALUES).encode()
    return data[: place.start()] + new + data[place.end() :]


# ------------------------------------------------------------------------------------------------ binary formats


def mutate_safetensors(data: bytes, draw: random.Random) -> bytes:
    """Change the JSON header, its length, or values."""
    if len(data) < 8:
        return insert_noise(data, draw)
    length = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + length], data[8 + length :]
    kind = draw.randrange(5)
    if kind == 0:
        length = draw.choice((0, 1, length - 1, length + 1, 2**31, 2**63 - 1, 2**64 - 1, len(data)))
    elif kind == 1 and body:
        at = draw.randrange(max(1, len(body) // 4)) * 4
        value = draw.choice((float("nan"), float("inf"), 3e38, -3e38, 1e-45))
        count = draw.choice((1, 1, 16, len(body) // 4))
        body = body[:at] + struct.pack("<f", value) * min(count, max(0, len(body) - at) // 4) + body[at + 4 * count :]
    elif kind == 2:
        return _other_shape(header, body, draw)
    else:
        header = mutate_json(header, draw)
        length = len(header)
    return length.to_bytes(8, "little") + header + body


def _other_shape(header: bytes, body: bytes, draw: random.Random) -> bytes:
    """A consistent file whose tensor has another shape, type or name, or is missing."""
    try:
        tree = json.loads(header)
        name = draw.choice([name for name in tree if name != "__metadata__"])
        entry = tree[name]
        begin, end = entry["data_offsets"]
        shape = list(entry["shape"])
        assert all(isinstance(number, int) for other in tree.values() for number in other.get("data_offsets", ()))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError, RecursionError):
        return len(header).to_bytes(8, "little") + mutate_json(header, draw) + body
    kind = draw.randrange(6)
    if kind == 0:
        del tree[name]
        body = body[:begin] + body[end:]
        for other in tree.values():
            if other.get("data_offsets", [-1])[0] >= end:
                other["data_offsets"] = [at - (end - begin) for at in other["data_offsets"]]
    elif kind == 1:
        tree[draw.choice((name + "x", "", "x" * 1000, "../" + name))] = tree.pop(name)
    elif kind == 2:
        entry["shape"] = draw.choice((shape[::-1], [*shape, 1], [1, *shape], [(end - begin) // 4], [0, *shape]))
    elif kind == 3:
        entry["dtype"] = draw.choice(("I32", "U8", "F16", "BF16", "F64", "BOOL", "F8_E4M3", "C64"))
    elif kind == 4:
        more = (end - begin) * draw.choice((1, 3))
        entry["shape"] = [shape[0] * (more // (end - begin) + 1), *shape[1:]] if shape and end > begin else [2]
        entry["data_offsets"] = [len(body), len(body) + end - begin + more]
        body += body[begin:end] + bytes(more)
    else:
        other = draw.choice([name for name in tree if name != "__metadata__"])
        tree[name], tree[other] = tree[other], tree[name]
    header = json.dumps(tree).encode()
    return len(header).to_bytes(8, "little") + header + body


HOSTILE_NAMES = (
    "../evil",
    "/tmp/nextword-fuzz-evil",
    "a/../../evil",
    "..\\evil",
    "C:\\evil",
    "",
    ".",
    "a\0b",
    "x" * 300,
    "a/" * 500 + "b",
    "\udcff",
    "train.txt",
)


def mutate_archive(data: bytes, draw: random.Random) -> bytes:
    """Add a hostile member: a path outside, a link, a device, a bomb, a repeated name; or damage a member's content."""
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            return _hostile_zip(data, draw)
        return _hostile_tar(data, draw)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        OSError,
        EOFError,
        ValueError,
        RuntimeError,  # encrypted, or an unknown method
        KeyError,  # a link to nothing
        MemoryError,  # a bomb
        struct.error,
        zlib.error,
        lzma.LZMAError,
    ):
        return draw.choice(BYTES)(data, draw)


def _hostile_zip(data: bytes, draw: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        infos = old.infolist()
        chosen = draw.randrange(len(infos)) if infos else -1
        kind = draw.randrange(5)
        for i, info in enumerate(infos):
            content = old.read(info)
            if i == chosen and kind == 0:
                content = draw.choice((*BYTES, *TEXT))(content, draw)
            if i == chosen and kind == 1:
                info = zipfile.ZipInfo(draw.choice(HOSTILE_NAMES).replace("\udcff", "ÿ"))
            if i == chosen and kind == 2:
                info.external_attr = draw.choice((0o120777, 0o010644, 0o020644, 0o040755)) << 16
                content = draw.choice((b"/etc/passwd", b"../../evil", content))
            new.writestr(info, content)
        if kind == 3:
            new.writestr(draw.choice(("train.en", "train.txt", "bomb.txt", "valid.de")), b"a b\n" * 50_000_000)
        if kind == 4 and infos:
            new.writestr(infos[chosen].filename, b"second\n")
    data = out.getvalue()
    if draw.random() < 0.2:  # flags of a member: encrypted, another method, sizes
        at = data.find(b"PK\1\2") + draw.choice((8, 10, 20, 24, 28, 42))
        data = data[:at] + draw.choice((b"\1\0", b"\x63\0", b"\xff\xff", b"\0\0")) + data[at + 2 :]
    return data


def _hostile_tar(data: bytes, draw: random.Random) -> bytes:
    out = io.BytesIO()
    mode = "w:gz" if data.startswith(b"\x1f\x8b") else "w:xz" if data.startswith(b"\xfd7z") else "w"
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=out, mode=mode) as new:  # type: ignore[call-overload]
        members = old.getmembers()
        chosen, kind = draw.randrange(len(members)), draw.randrange(5)
        for i, member in enumerate(members):
            file = old.extractfile(member)
            content = file.read() if file else b""
            if i == chosen and kind == 0:
                content = draw.choice((*BYTES, *TEXT))(content, draw)
            if i == chosen and kind == 1:
                member.name = draw.choice(HOSTILE_NAMES).replace("\0", "") or "x"
            if i == chosen and kind == 2:
                member.type = draw.choice(
                    (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
                )
                member.linkname = draw.choice(("/etc/passwd", "../../evil", member.name, "nowhere"))
                member.size, content = 0, b""
            member.size = len(content) if member.isreg() else 0
            new.addfile(member, io.BytesIO(content) if member.isreg() else None)
        if kind == 3:
            bomb = tarfile.TarInfo(draw.choice(("train.en", "train.txt", "bomb.txt")))
            bomb.size = 200_000_000
            new.addfile(bomb, io.BytesIO(b"a b\n" * 50_000_000))
        if kind == 4:
            new.addfile(members[chosen], old.extractfile(members[chosen]) if members[chosen].isreg() else None)
    return out.getvalue()


class _Program:
    """Pickled, it is a program that leaves a trace if it runs."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ.get("NEXTWORD_FUZZ_TRACE", "/nonexistent/trace"),)


def hostile_pickle(data: bytes, draw: random.Random) -> bytes:
    program = pickle.dumps({"weight": _Program()}, protocol=draw.choice((0, 2, 4)))
    if draw.random() < 0.3 or not zipfile.is_zipfile(io.BytesIO(data)):
        return program
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            for info in old.infolist():
                new.writestr(info, program if info.filename.endswith("data.pkl") else old.read(info))
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, struct.error, zlib.error):
        return program  # the archive was damaged before
    return out.getvalue()


def mutate_compressed(data: bytes, draw: random.Random) -> bytes:
    """Truncate, repeat or damage what is compressed, or compress it twice; or a bomb."""
    kind = draw.randrange(6)
    try:
        content = gzip.decompress(data)
    except (OSError, EOFError, ValueError, zlib.error):
        return draw.choice(BYTES)(data, draw)
    if kind == 0:
        return gzip.compress(draw.choice((*BYTES, *TEXT))(content, draw), mtime=0)
    if kind == 1:
        return data + draw.choice((data, b"\0" * 100, b"garbage", b"\x1f\x8b"))
    if kind == 2:
        return gzip.compress(data, mtime=0)
    if kind == 3 and draw.random() < 0.3:
        return gzip.compress(b"a" * 200_000_000, 1, mtime=0)
    if kind == 4:
        return data[:-8] + draw.randbytes(8)
    return truncate(data, draw)


# ------------------------------------------------------------------------------------------------ files


def mutations_of(path: Path) -> Sequence[Mutation]:
    """The mutations that know this file's format."""
    name = path.name.lower()
    if name.endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz")):
        return (mutate_archive,)
    if name.endswith(".gz"):
        return (mutate_compressed,)
    if name.endswith(".safetensors"):
        return (mutate_safetensors,)
    if name.endswith("pytorch_model.bin"):
        return (hostile_pickle, mutate_archive)
    if name.endswith((".json", ".index.json")):
        return (mutate_json, mutate_json, mutate_json, mutate_number)
    if name.endswith((".jsonl", ".ndjson")):
        return (mutate_json_lines, mutate_json_lines, *TEXT)
    if name.endswith(".toml"):
        return (mutate_toml, mutate_toml, mutate_toml, *TEXT)
    if name.endswith((".bin", ".ngram", ".hdf5", ".model", ".bz2", ".xz", ".zst", ".npz")):
        return (patch_integer,)
    return TEXT


def mutate_ngram(data: bytes, draw: random.Random) -> bytes:
    """Change the JSON header of a binary n-gram file; it keeps its length if it can."""
    length = int.from_bytes(data[20:24], "little")
    header = data[24 : 24 + length]
    new = mutate_json(header.rstrip(), draw).ljust(length)
    return data[:20] + len(new).to_bytes(4, "little") + new + data[24 + length :]


def mutate_file(path: Path, draw: random.Random) -> str:
    """Damage one file; return how."""
    kind = draw.random()
    if kind < 0.02:
        path.unlink()
        return f"{path.name}: deleted"
    if kind < 0.03:
        path.unlink()
        path.mkdir()
        return f"{path.name}: a folder"
    if kind < 0.04:
        path.unlink()
        path.symlink_to(draw.choice(("/nonexistent", path.name, "/dev/zero", "..")))
        return f"{path.name}: a link to {os.readlink(path)}"
    structural: Sequence[Mutation] = mutations_of(path)
    if path.suffix == ".ngram" and draw.random() < 0.5:
        structural = (mutate_ngram,)
    mutation = draw.choice(structural) if draw.random() < 0.65 else draw.choice(BYTES)
    path.write_bytes(mutation(path.read_bytes(), draw))
    return f"{path.name}: {mutation.__name__}"


def mutate(folder: Path, draw: random.Random, only: Sequence[str] = ()) -> str:
    """Damage one to three places in the files of a folder; return how, in words. `only`: the files to choose from."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and (not only or path.name in only))
    if draw.random() < 0.03 and len(files) > 1:
        one, other = draw.sample(files, 2)
        shutil.copyfile(one, other)
        return f"{other.name}: a copy of {one.name}"
    done = []
    for _ in range(draw.choice((1, 1, 1, 1, 2, 3))):
        path = draw.choice(files)
        if path.is_file() and not path.is_symlink():
            done.append(mutate_file(path, draw))
    return "; ".join(done)
