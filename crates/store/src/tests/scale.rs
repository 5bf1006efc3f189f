//! What must not grow with the store.
