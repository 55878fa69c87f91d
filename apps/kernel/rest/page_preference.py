"""Page preference: whether whoever asks would rather have a page than data, by the header `Accept`. Pure.

Browsers name `text/html` when somebody opens an address; programs, scripts and load balancers do not. Must never decide
what anybody may see.
"""

from __future__ import annotations

from typing import Final

_PAGE, _DATA = "text/html", "application/json"
# Characters of the header that are looked at: browsers send some two hundred.
_MOST: Final = 1_000


def prefers_page(accept: str) -> bool:
    """Tell whether `Accept` names pages, and data not before them. `*/*` alone, or nothing, is no wish for a page."""
    if _PAGE not in accept[:_MOST]:
        return False
    weights = {_PAGE: 0.0, _DATA: 0.0}
    for stated in accept[:_MOST].lower().split(","):
        name, *parameters = (part.strip() for part in stated.split(";"))
        if name in weights:
            weights[name] = next((_weight_of(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
    return weights[_PAGE] > 0 and weights[_PAGE] >= weights[_DATA]


def _weight_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
