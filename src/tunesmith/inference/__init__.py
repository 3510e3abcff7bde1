"""Token generation behind one small protocol, and conversations on top of it.

`base` holds the protocol and its options, `local` the generator that runs the model in this process, `load` builds one
from a configuration, `conversation` keeps the turns of a chat.
"""
