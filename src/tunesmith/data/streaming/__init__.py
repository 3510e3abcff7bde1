"""Rows as they come: read, shuffled, encoded and packed on the way to the model, with a place to go on from.

In the order in which a row passes through:

    shards.py     files cut into parts                      -> who reads what
    cursors.py    a part from any place on                  -> raw rows with their places
    mixing.py     the parts of one process, set by set      -> raw rows of an epoch
    shuffling.py  blocks of raw rows in another order       -> raw rows in the order of training
    pieces.py     some ten rows at a time, encoded anywhere -> encoded pieces
    windows.py    packed, some hundred rows at a time       -> examples
    loader.py     collated, with the place behind each      -> batches

Each process of a run reads rows of its own. All but encoding is done in that process and in order, so that the order
does not depend on who encodes.

Every stage keeps its place as: where the stage before it stood at some border, and how many rows were given out since.
Going on means to stand there again and to do the same once more, for a border that is never further away than a block
of rows. So a place is small, is taken after every batch, and costs the same to go back to early and late in a run. (The
loaders of `datasets` and torchdata were looked at: the first loses its shuffle buffer on resuming, the second would
send that buffer from the worker with every batch.)
"""
