"""What can go wrong between a client and its connection.

ClientError
├── ClientCut        the connection is over: it lagged too far behind, or its transport failed
├── ListenRefused    the app-server will not listen where or how it was told to
└── TokenFileInvalid a token file that is missing, empty or open to others
"""


class ClientError(Exception):
    """Base of this room's errors; the text is for a person."""


class ClientCut(ClientError):
    """This connection takes no more frames; the transport should close."""


class ListenRefused(ClientError):
    """The address cannot be served safely; the text says what to change."""


class TokenFileInvalid(ClientError):
    """The file holds no usable token; the text says which file and why."""
