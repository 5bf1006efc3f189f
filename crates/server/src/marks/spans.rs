//! Spans of a channel that are marked: of marks that overlap, the last one counts.

use std::ops::Range;
use std::sync::Arc;

use strongback_query::{MarkRow, MarkedSpan};

/// Lays a mark over earlier ones. Spans ascend and do not overlap.
pub fn lay_over(spans: &[MarkedSpan], mark: &Arc<MarkRow>) -> Vec<MarkedSpan> {
    let (from_ns, to_ns) = (mark.from_ns, mark.to_ns);
    let first = spans.partition_point(|span| span.to_ns <= from_ns);
    let end = first + spans[first..].partition_point(|span| span.from_ns < to_ns);
    let mut laid = spans[..first].to_vec();
    if let Some(cut) = spans[first..end].first().filter(|span| span.from_ns < from_ns) {
        laid.push(MarkedSpan { to_ns: from_ns, ..cut.clone() });
    }
    laid.push(MarkedSpan { from_ns, to_ns, mark: mark.clone() });
    if let Some(cut) = spans[first..end].last().filter(|span| span.to_ns > to_ns) {
        laid.push(MarkedSpan { from_ns: to_ns, ..cut.clone() });
    }
    laid.extend_from_slice(&spans[end..]);
    laid
}

/// Returns the spans that touch a time range, cut to it.
pub fn within(spans: &[MarkedSpan], time: &Range<i64>) -> Vec<MarkedSpan> {
    let first = spans.partition_point(|span| span.to_ns <= time.start);
    let cut = |span: &MarkedSpan| MarkedSpan {
        from_ns: span.from_ns.max(time.start),
        to_ns: span.to_ns.min(time.end),
        mark: span.mark.clone(),
    };
    spans[first..].iter().take_while(|span| span.from_ns < time.end).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_query::Quality;

    #[test]
    fn the_last_mark_counts_at_every_instant() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut spans, mut naive) = (Vec::new(), [None::<u64>; 40]);
            for id in 0..random.u64(1..12) {
                let from = random.usize(0..39);
                let to = random.usize(from + 1..=40);
                let mark = Arc::new(MarkRow {
                    id,
                    time_ns: 0,
                    stream: String::new(),
                    channel: String::new(),
                    from_ns: from as i64,
                    to_ns: to as i64,
                    quality: Quality::Bad,
                    by: String::new(),
                    reason: String::new(),
                });
                spans = lay_over(&spans, &mark);
                naive[from..to].fill(Some(id));
                let order = spans.windows(2).all(|pair| pair[0].to_ns <= pair[1].from_ns);
                assert!(order && spans.iter().all(|span| span.from_ns < span.to_ns), "seed {seed}: {spans:?}");
                for (at, wanted) in (0..).zip(naive) {
                    let found = within(&spans, &(at..at + 1));
                    assert_eq!(found.first().map(|span| span.mark.id), wanted, "seed {seed}, {at}");
                    assert!(found.iter().all(|span| (span.from_ns, span.to_ns) == (at, at + 1)), "seed {seed}, {at}");
                }
            }
        }
    }
}
