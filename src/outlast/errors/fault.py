"""Give up and look: retrying does not help."""

from __future__ import annotations

from outlast.errors.root import OutlastError


class StoreFault(OutlastError):
    """The database or its data is not as it should be; an operator has to look."""


class Undecodable(StoreFault):
    """Stored bytes are not what they should be: damaged, tampered with, or of an unknown form."""


class NotAStore(StoreFault):
    """The file or database is not an outlast store."""


class SchemaTooNew(StoreFault):
    """The store was written by a newer outlast. Upgrade this process."""


class UnsafeStorage(StoreFault):
    """Durability cannot be promised here, for instance on a network filesystem."""


class ReadOnlyStore(StoreFault):
    """The database cannot be written: check the permissions of the file and its folder."""


class StoreFull(StoreFault):
    """No space is left. Nothing of the refused write remains; free some space and go on."""
