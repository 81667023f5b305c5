"""A screenshot with 256 colours: a third of the bytes, and no eye sees the difference in the workbench.

A notebook is stored with many pictures, and every clone of the repository has all of them. The browser decodes the
screenshot; the most frequent colours become the palette, and each other pixel gets the nearest of them.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from playwright.sync_api import Browser

PIXELS = """async (png) => {
    const picture = new Image();
    picture.src = "data:image/png;base64," + png;
    await picture.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [picture.width, picture.height];
    const context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const reader = new FileReader();
    await new Promise((done) => { reader.onload = done; reader.readAsDataURL(new Blob([data])); });
    return [canvas.width, canvas.height, reader.result.split(",")[1]];
}"""


def in_256_colours(png: bytes, browser: Browser) -> bytes:
    """The same picture as a PNG with a palette, without transparency."""
    page = browser.new_page()
    width, height, pixels = page.evaluate(PIXELS, base64.b64encode(png).decode())
    page.close()
    rgb = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(-1, 4)[:, :3]
    colours, which, counts = np.unique(rgb, axis=0, return_inverse=True, return_counts=True)
    palette = colours[np.argsort(-counts, kind="stable")[:256]]
    nearest = [np.square(palette.astype(int) - colour).sum(axis=1).argmin() for colour in colours]
    rows = np.array(nearest, np.uint8)[which].reshape(height, width)
    lines = np.pad(rows, ((0, 0), (1, 0)))  # each line begins with the number of its filter: none
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),  # 8 bits for each place in the palette
            (b"PLTE", palette.tobytes()),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )
