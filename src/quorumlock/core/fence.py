"""Which fence N independent nodes agree on.

Every node counts for itself, so the grants of one acquisition may carry different fences. The highest
granted, v, becomes the lease's. A node that granted exactly v is confirmed; the others that granted are asked
to rise to v, and do so only if they still name the token *and* still have the fence they granted. With a
majority confirmed, v is unique and ordered: two acquisitions that both ended share a confirmed node, and on
that node one confirmed before the other was granted, so the later grant answered above the earlier fence.
"""

from __future__ import annotations

from .votes import Tally


def confirmed(tally: Tally, fence: int) -> set[int]:
    """Nodes that granted exactly `fence`."""
    return {node for node, granted in tally.granted() if granted == fence}


def behind(tally: Tally, fence: int) -> dict[int, int]:
    """Nodes that granted less than `fence`, each with what it granted."""
    return {node: granted for node, granted in tally.granted() if granted < fence}
