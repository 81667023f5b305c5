"""Screenshots as goldens: small, so that they are cheap to keep, and compared with tolerance.

Both pictures are scaled down in the browser, which averages away how a font's edges were smoothed; then a pixel differs
where a channel is off by more than `FAR`, and the pictures where more than `MANY` of the pixels do. A missing card, a
column that moved, a lost colour is far more than that. `make goldens` writes them anew.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from playwright.sync_api import Page

GOLDENS = Path(__file__).parent / "goldens"
UPDATE = bool(os.environ.get("AOTVIZ_UPDATE_GOLDENS"))
WIDTH = 480  # pixels of a golden
COARSE = 4  # pixels of a golden that are averaged into one before they are compared
FAR = 40  # of 255
MANY = 0.04  # of the pixels

DRAWN = """const drawn = async (png, width) => {
    const picture = new Image();
    picture.src = 'data:image/png;base64,' + png;
    await picture.decode();
    const canvas = document.createElement('canvas');
    canvas.width = width;
    canvas.height = Math.round(picture.height * width / picture.width);
    const context = canvas.getContext('2d');
    context.imageSmoothingQuality = 'high';
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return canvas;
};"""
SCALED = f"""async ({{ png, width }}) => {{
    {DRAWN}
    const canvas = await drawn(png, width);
    return canvas.toDataURL('image/png').split(',')[1];
}}"""
DIFFERING = f"""async ({{ pngs, width, far }}) => {{
    {DRAWN}
    const pixels = [];
    for (const png of pngs) {{
        const canvas = await drawn(png, width);
        pixels.push(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height));
    }}
    const [one, two] = pixels;
    if (one.height !== two.height) return 1;
    let off = 0;
    for (let i = 0; i < one.data.length; i += 4) {{
        if ([0, 1, 2].some((channel) => Math.abs(one.data[i + channel] - two.data[i + channel]) > far)) off++;
    }}
    return off / (one.data.length / 4);
}}"""


def check(blank: Page, picture: bytes, name: str, failed: Path) -> None:
    """Compares a screenshot with its golden, or writes the golden. `blank` is a page to draw on.

    Raises AssertionError, after it has put the picture into the folder `failed`.
    """
    golden = GOLDENS / f"{name}.png"
    small = base64.b64decode(blank.evaluate(SCALED, {"png": _text(picture), "width": WIDTH}))
    if UPDATE:
        GOLDENS.mkdir(exist_ok=True)
        golden.write_bytes(small)
        return
    assert golden.exists(), f"there is no golden {golden.name}: write it with `make goldens`, and look at it"
    pngs = [_text(golden.read_bytes()), _text(small)]
    part = blank.evaluate(DIFFERING, {"pngs": pngs, "width": WIDTH // COARSE, "far": FAR})
    if part > MANY:
        (failed / f"golden-{name}.png").write_bytes(picture)
        raise AssertionError(
            f"{part:.1%} of {name} looks otherwise than its golden: compare {failed / f'golden-{name}.png'} with "
            f"{golden}. If it is meant to, write the goldens anew with `make goldens`."
        )


def _text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()
