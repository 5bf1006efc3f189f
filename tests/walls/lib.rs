//! Tests of the repository's shape: dependency walls, the written map, the size of files. There is no code
//! here beside the tests in `repository.rs`.

#![forbid(unsafe_code)]
