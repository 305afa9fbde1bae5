//! Where values live: schedule, views, in-place results and arena offsets.
