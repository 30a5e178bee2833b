"""Put sequences into rows of a fixed length: each into the first row where it fits."""


def pack_by_scan(lengths, limit):
    rows, members = [], []
    for index, length in enumerate(lengths):
        number = next((number for number, row in enumerate(rows) if sum(row) + length <= limit), len(rows))
        if number == len(rows):
            rows.append([])
            members.append([])
        rows[number].append(length)
        members[number].append(index)
    return members


def pack_by_tree(lengths, limit):
    """The same rows; a tree holds the largest free place below each node."""
    size = 1 << (len(lengths) - 1).bit_length()
    free, members = [limit] * (2 * size), []
    for index, length in enumerate(lengths):
        node = 1
        while node < size:
            node = 2 * node + (free[2 * node] < length)
        if node - size == len(members):
            members.append([])
        members[node - size].append(index)
        free[node] -= length
        while node := node // 2:
            free[node] = max(free[2 * node], free[2 * node + 1])
    return members
