"""Who may call: from the Authorization header to a principal (core, "Authorization").

    access.py     reads the header, asks one of the verifiers below, and words what is refused
    api_keys.py   static keys, of which only hashes are known
    tokens.py     JWT access tokens of an authorization server
    key_set.py    its keys: fetched, cached, and fetched again for one that is unknown
    metadata.py   the document that tells clients which authorization server to go to (RFC 9728)

What a principal may see and touch is not decided here: every statement about a task names its owner.
"""
