//! Other names for tags that cannot keep their own.

/// The name of a tag that has to get out of the way: with `_tag` behind it, and a number where another tag is called
/// just so: `time_tag`, `time_tag_2`.
pub(crate) fn free_tag(tag: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let stem = format!("{tag}_tag");
    let mut name = stem.clone();
    let mut n = 2;
    while is_taken(&name) {
        name = format!("{stem}_{n}");
        n += 1;
    }
    name
}
