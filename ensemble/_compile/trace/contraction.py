"""Products followed by sums, contracted to fused multiply-adds by name.

A compiler that contracts by itself does so differently for each width and target. Here the graph determines which
products are fused, so that all samples, widths and devices round alike.
"""

from __future__ import annotations

from collections import Counter

from ensemble._compile.trace.graph import Graph, Node

__all__ = ["contracted"]


def contracted(graph: Graph) -> Graph:
    """The graph in which a product whose only use is a sum or difference is fused with it, as node "fma".

    Of a sum of two such products the first one is fused.
    """
    uses = Counter(k for node in graph.nodes for k in node.inputs) + Counter(graph.outputs)
    nodes: list[Node] = []
    place: dict[int, int] = {}

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    def fusible(k: int) -> bool:
        product = graph.nodes[k]
        return product.operation == "multiply" and uses[k] == 1 and product.dtype.startswith("float")

    skipped = set()
    for node in graph.nodes:
        if node.operation in ("add", "subtract") and node.dtype.startswith("float"):
            chosen = next((k for k in node.inputs if fusible(k) and graph.nodes[k].dtype == node.dtype), None)
            if chosen is not None and node.inputs[0] != node.inputs[1]:
                skipped.add(chosen)
    for k, node in enumerate(graph.nodes):
        if k in skipped:
            continue
        chosen = next((i for i in node.inputs if i in skipped), None)
        if chosen is None:
            place[k] = add(Node(node.operation, tuple(place[i] for i in node.inputs), node.dtype, node.value))
            continue
        a, b = (place[i] for i in graph.nodes[chosen].inputs)
        first = node.inputs[0] == chosen
        other = place[node.inputs[1] if first else node.inputs[0]]
        if node.operation == "subtract" and first:
            other = add(Node("negative", (other,), node.dtype))
        elif node.operation == "subtract":
            a = add(Node("negative", (a,), node.dtype))
        place[k] = add(Node("fma", (a, b, other), node.dtype))
    return Graph(tuple(nodes), graph.n_inputs, tuple(place[k] for k in graph.outputs), graph.structure)
