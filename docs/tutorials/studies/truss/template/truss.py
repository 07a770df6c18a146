"""A cantilever truss of ten bars: reads truss.in, writes tip.txt and bars.csv. It needs Python alone."""

import math
import sys

with open("truss.in") as file:
    numbers = [float(word) for line in file if not line.startswith("#") for word in line.split()]
load, modulus, chords, diagonals = numbers
if min(modulus, chords, diagonals) <= 0.0:
    sys.exit("a bar has no stiffness")

# Two bays of 9 m; nodes 0 to 3 are free, 4 and 5 are held.
nodes = [(18.0, 9.0), (18.0, 0.0), (9.0, 9.0), (9.0, 0.0), (0.0, 9.0), (0.0, 0.0)]
bars = [(4, 2), (2, 0), (5, 3), (3, 1), (2, 3), (0, 1), (4, 3), (2, 5), (2, 1), (0, 3)]
areas = [chords] * 4 + [diagonals] * 6

K = [[0.0] * 8 for _ in range(8)]
directions = []
for (a, b), area in zip(bars, areas):
    dx, dy = nodes[b][0] - nodes[a][0], nodes[b][1] - nodes[a][1]
    length = math.hypot(dx, dy)
    directions.append((dx / length, dy / length, length))
    entries = [(2 * a, -dx), (2 * a + 1, -dy), (2 * b, dx), (2 * b + 1, dy)]
    for i, u in entries:
        for j, v in entries:
            if i < 8 and j < 8:
                K[i][j] += modulus * area * u * v / length**3

u = [0.0] * 8
u[3] = u[7] = -load
for k in range(8):  # Gauss; the matrix is positive definite
    for i in range(k + 1, 8):
        factor = K[i][k] / K[k][k]
        u[i] -= factor * u[k]
        for j in range(k, 8):
            K[i][j] -= factor * K[k][j]
for k in reversed(range(8)):
    u[k] = (u[k] - sum(K[k][j] * u[j] for j in range(k + 1, 8))) / K[k][k]
u += [0.0] * 4

with open("tip.txt", "w") as file:
    print(-u[3], file=file)
with open("bars.csv", "w") as file:
    print("bar,stress", file=file)
    for k, ((a, b), (c, s, length)) in enumerate(zip(bars, directions)):
        print(f"{k},{modulus * (c * (u[2 * b] - u[2 * a]) + s * (u[2 * b + 1] - u[2 * a + 1])) / length!r}", file=file)
