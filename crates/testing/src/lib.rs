//! For tests only: seeded noise, fixtures, the op harness.
