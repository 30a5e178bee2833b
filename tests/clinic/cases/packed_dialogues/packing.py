"""Put sequences of tokens into rows of a fixed length."""


def row_that_fits(rows, length, limit):
    for number, row in enumerate(rows):
        if sum(row) + length <= limit:
            return number
    return -1


def pack_by_scan(lengths, limit):
    rows, members = [], []
    for index, length in enumerate(lengths):
        number = row_that_fits(rows, length, limit)
        if number < 0:
            rows.append([])
            members.append([])
        rows[number].append(length)
        members[number].append(index)
    return members


def pack_by_tree(lengths, limit):
    """The same rows; a tree holds the largest free place below each node."""
    size = 1 << (len(lengths) - 1).bit_length()
    free = [limit] * (2 * size)
    members = []
    for index, length in enumerate(lengths):
        node = 1
        while node < size:
            node = 2 * node if free[2 * node] >= length else 2 * node + 1
        number = node - size
        if number == len(members):
            members.append([])
        members[number].append(index)
        free[node] -= length
        while node > 1:
            node //= 2
            free[node] = max(free[2 * node], free[2 * node + 1])
    return members
