"""Image files are read as a viewer shows them, whatever their format."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.data.loaders.images import read_images
from fallow.data.loaders.pixels import ImageError, measure_image, open_image, show_image
from tests.each import each_of

images = pytest.importorskip("PIL.Image")
operations = pytest.importorskip("PIL.ImageOps")
colors = pytest.importorskip("PIL.ImageCms")

UPRIGHT = np.add.outer(40 * np.arange(3), 100 * np.arange(2)).astype(np.uint8)
"""3 x 2 pixels, all different."""
TURNS = {  # what a camera stored, so that its orientation restores the upright image
    1: UPRIGHT,
    2: np.fliplr(UPRIGHT),
    3: np.rot90(UPRIGHT, 2),
    4: np.flipud(UPRIGHT),
    5: UPRIGHT.T,
    6: np.rot90(UPRIGHT, 1),
    7: np.rot90(UPRIGHT, 2).T,
    8: np.rot90(UPRIGHT, -1),
}
LOSSLESS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "WEBP": {"lossless": True},
    "TIFF": {},
    "JPEG": {"quality": 100, "subsampling": 0},
}


def encode(image: Any, kind: str, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return file


def read(file: io.BytesIO) -> np.ndarray:
    with open_image(file, "a test") as opened:
        return show_image(opened).levels


def test_every_orientation_is_turned_upright_in_every_format() -> None:
    for kind, options in LOSSLESS.items():
        for orientation, stored in TURNS.items():
            enlarged = np.kron(stored, np.ones((8, 8))).astype(np.uint8)  # whole blocks
            exif = images.Exif()
            exif[0x0112] = orientation
            file = encode(images.fromarray(enlarged), kind, exif=exif, **options)
            with open_image(file, "a test") as opened:
                size = measure_image(opened)
                shown = show_image(opened)
            case = f"{kind}, orientation {orientation}"
            assert shown.levels.shape[1:] == (24, 16), case
            assert size == (16, 24), case
            difference = shown.levels[0, ::8, ::8].astype(int) - UPRIGHT
            assert np.abs(difference).max() <= 2, case
            assert bool(shown.changes) == (orientation != 1), case


def gray_palette() -> Any:
    image = images.fromarray(UPRIGHT).convert("P")
    image.putpalette([value for value in range(256) for _ in range(3)])
    return image


def color_palette() -> Any:
    image = images.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    return image


def clear(mode: str, color: tuple[int, ...]) -> Any:
    return images.new(mode, (2, 2), color)


def with_key(color: int) -> Any:
    image = images.new("P", (2, 2), color)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.info["transparency"] = 0
    return image


Mode = tuple[Callable[[], Any], str, tuple[int, ...]]
MODES: dict[str, Mode] = {  # image, format, color of its first pixel
    "gray": (lambda: images.new("L", (2, 2), 7), "PNG", (7,)),
    "black and white": (lambda: images.new("1", (2, 2), 1), "PNG", (255,)),
    "palette": (color_palette, "PNG", (200, 100, 50)),
    "palette of a GIF": (color_palette, "GIF", (200, 100, 50)),
    "gray palette": (gray_palette, "PNG", (0,)),
    "transparent palette color": (lambda: with_key(0), "PNG", (255, 255, 255)),
    "other palette color": (lambda: with_key(1), "PNG", (200, 100, 50)),
    "opaque": (lambda: clear("RGBA", (10, 20, 30, 255)), "PNG", (10, 20, 30)),
    "transparent": (lambda: clear("RGBA", (10, 20, 30, 0)), "PNG", (255, 255, 255)),
    "half transparent": (lambda: clear("RGBA", (0, 0, 0, 102)), "PNG", (153, 153, 153)),
    "transparent gray": (lambda: clear("LA", (10, 0)), "PNG", (255,)),
    "printing colors": (lambda: clear("CMYK", (0, 255, 255, 0)), "TIFF", (255, 0, 0)),
    "16 bits": (lambda: images.fromarray(np.full((2, 2), 257 * 99, "u2")), "PNG", (99,)),
    "16 bits, TIFF": (lambda: images.fromarray(np.full((2, 2), 257, "u2")), "TIFF", (1,)),
}


@each_of("make, kind, color", MODES.values())
def test_pixel_formats_are_read_as_shown(
    make: Callable[[], Any], kind: str, color: tuple[int, ...]
) -> None:
    levels = read(encode(make(), kind))
    assert levels[:, 0, 0].tolist() == pytest.approx(color, abs=1)


def test_16_bits_with_white_as_zero_are_inverted() -> None:
    dark = images.fromarray(np.full((2, 2), 65_535, np.uint16))
    assert read(encode(dark, "TIFF", tiffinfo={262: 0})).max() == 0
    assert read(encode(dark, "TIFF", tiffinfo={262: 1})).min() == 255


def test_a_color_profile_is_converted_to_srgb() -> None:
    lab = colors.createProfile("LAB")
    wide = colors.ImageCmsProfile(colors.createProfile("XYZ"))
    image = images.new("RGB", (2, 2), (200, 100, 50))
    same = colors.ImageCmsProfile(colors.createProfile("sRGB")).tobytes()
    assert read(encode(image, "PNG", icc_profile=same))[:, 0, 0].tolist() == [200, 100, 50]
    for profile in (b"damaged", wide.tobytes(), colors.ImageCmsProfile(lab).tobytes()):
        levels = read(encode(image, "PNG", icc_profile=profile))
        assert levels.shape == (3, 2, 2)  # profiles of other colors are ignored, or used


def test_damaged_metadata_are_ignored_as_viewers_do() -> None:
    image = images.fromarray(UPRIGHT)
    assert (read(encode(image, "PNG", exif=b"Exif\0\0damaged")) == UPRIGHT).all()


@each_of("kind", ("GIF", "PNG", "TIFF", "WEBP"))
def test_several_pages_or_frames_are_refused(kind: str) -> None:
    first = images.new("RGB", (4, 4))
    second = images.new("RGB", (4, 4), "red")
    file = encode(first, kind, save_all=True, append_images=[second])
    with pytest.raises(ImageError, match="it has 2 pages or frames; save each"):
        read(file)


def test_of_a_photograph_with_a_preview_the_first_image_is_read() -> None:
    first = images.new("RGB", (16, 16), (200, 0, 0))
    second = images.new("RGB", (8, 8))
    file = encode(first, "MPO", save_all=True, append_images=[second])
    assert read(file).shape == (3, 16, 16)


def test_floats_are_refused() -> None:
    image = images.fromarray(np.zeros((2, 2), np.float32))
    with pytest.raises(ImageError, match="pixel format F is not supported; save it as PNG"):
        read(encode(image, "TIFF"))


def test_signed_numbers_of_16_bits_are_refused() -> None:
    image = images.fromarray(np.full((2, 2), -5, np.int32))
    with pytest.raises(ImageError, match="have a sign or more than 16 bits"):
        read(encode(image, "TIFF"))


def test_all_damaged_files_are_named_at_once(tmp_path: Path) -> None:
    files = []
    for number in range(5):
        content = encode(images.fromarray(np.eye(30, dtype=np.uint8)), "PNG").getvalue()
        files.append(tmp_path / f"{number}.png")
        files[-1].write_bytes(content[: 50 if number % 2 else None])
    with pytest.raises(ValueError, match=r"1\.png could not be read .*; so cannot 3\.png$"):
        read_images(files)


def test_every_truncation_and_flipped_byte_is_read_or_refused() -> None:
    draw = np.random.default_rng(0)
    for kind, options in LOSSLESS.items():
        exif = images.Exif()
        exif[0x0112] = 6
        content = encode(images.fromarray(UPRIGHT), kind, exif=exif, **options).getvalue()
        for _ in range(60):
            damaged = bytearray(content[: draw.integers(1, len(content) + 1)])
            for at in draw.integers(0, len(damaged), 3):
                damaged[at] = draw.integers(256)
            try:
                levels = read(io.BytesIO(bytes(damaged)))
            except ImageError:
                continue
            assert levels.ndim == 3
