"""Reading back what this package stored: cohorts, runs, encoders, features and bundles are input like any other.

Every reader takes regular files only (no pipes, devices, links out of the folder), looks at sizes before it allocates,
checks the hash that was written along, and says what is wrong in a sentence that names the file.
"""

from bridgemil.stored.folder import StoredFolder
from bridgemil.stored.hashes import SEAL, file_hash, seal, write_sealed

__all__ = ["SEAL", "StoredFolder", "file_hash", "seal", "write_sealed"]
