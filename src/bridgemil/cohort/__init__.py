"""From recordings to a cohort: listing, checking, preprocessing, storing, and splitting by subject."""
