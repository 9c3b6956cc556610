//! Thresholds and a baseline, applied to a report.
