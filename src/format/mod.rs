//! Number formats and their exact rounding, one file each. Knows nothing of checkpoints or reports.
