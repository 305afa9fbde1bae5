"""Pictures and masks in the forms that Python programs have them."""

from __future__ import annotations

import numpy as np


def array(value) -> np.ndarray:
    """Any array: NumPy's, a tensor of any framework, a list. Nothing is copied where the memory can be shared."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def pixels(image) -> np.ndarray:
    """The pixels of a picture, uint8 [height, width, 3]: of PIL's pictures, of arrays [height, width, 3] and of grey arrays
    [height, width]."""
    if hasattr(image, "convert") and hasattr(image, "mode"):
        image = image.convert("RGB")
    found = array(image)
    if found.dtype != np.uint8:
        raise TypeError(f"a picture is uint8 [height, width, 3], not {found.dtype} {list(found.shape)}")
    if found.ndim == 2:
        found = np.repeat(found[:, :, None], 3, axis=2)
    if found.ndim != 3 or found.shape[2] != 3:
        raise ValueError(f"a picture is uint8 [height, width, 3], not {list(found.shape)}")
    return found


def truth(mask) -> np.ndarray:
    """The pixels of a mask, bool [height, width]; numbers count as set where they are above 0."""
    found = array(mask)
    if found.ndim != 2:
        raise ValueError(f"a mask is bool [height, width], not {list(found.shape)}")
    return found if found.dtype == np.bool_ else found > 0
