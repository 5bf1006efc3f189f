//! Channels that match a subscription but for which there was no room. Kept by number, so that no pattern has to be
//! matched again once there is room.

use std::sync::Arc;

use strongback_store::{Stream, StreamId, StreamKey, StreamList};

/// Max streams kept for a subscription, and max runs of adjacent channels in them: about 40 KiB.
const STREAMS_MAX: usize = 256;
const RUNS_MAX: usize = 2048;

/// Matches of a subscription that wait for room.
#[derive(Debug, Default)]
pub struct Unplaced {
    streams: Vec<UnplacedStream>,
    /// Number of runs over all streams.
    runs: usize,
    /// Whether the client was told that there are more than are kept.
    is_more_told: bool,
}

#[derive(Debug)]
struct UnplacedStream {
    id: StreamId,
    /// Key of the stream, since the number may belong to another stream after the store is reopened.
    key: StreamKey,
    /// First and last channel of each run.
    runs: Vec<(u16, u16)>,
}

impl Unplaced {
    /// Keeps channels of a stream. Returns false if there is no space for them.
    pub fn keep(&mut self, stream: &Stream, channels: &[u16]) -> bool {
        let runs = runs_of(channels);
        let at = self.streams.iter().position(|kept| kept.id == stream.id && kept.key == stream.key);
        if self.runs + runs.len() > RUNS_MAX || at.is_none() && self.streams.len() >= STREAMS_MAX {
            return false;
        }
        self.runs += runs.len();
        match at {
            Some(at) => self.streams[at].runs.extend(runs),
            None => self.streams.push(UnplacedStream { id: stream.id, key: stream.key.clone(), runs }),
        }
        true
    }

    /// Removes and returns all kept channels, oldest first, with the streams as they are now. Channels of streams
    /// that no longer exist are dropped.
    pub fn take(&mut self, streams: &StreamList) -> Vec<(Arc<Stream>, Vec<u16>)> {
        self.runs = 0;
        let of = |kept: UnplacedStream| {
            let stream = streams.get(kept.id.0 as usize).filter(|stream| stream.key == kept.key)?;
            let all = kept.runs.iter().flat_map(|(first, last)| *first..=*last);
            let channels: Vec<u16> = all.filter(|at| usize::from(*at) < stream.layout.channels.len()).collect();
            (!channels.is_empty()).then(|| (stream.clone(), channels))
        };
        std::mem::take(&mut self.streams).into_iter().filter_map(of).collect()
    }

    /// Returns the number of channels of the kept stream with the fewest, if there is one.
    pub fn fewest(&self) -> Option<u64> {
        let count =
            |kept: &UnplacedStream| kept.runs.iter().map(|(first, last)| u64::from(last - first) + 1).sum::<u64>();
        self.streams.iter().map(count).min()
    }

    /// Notes that the client is told that some were not kept. Returns whether it did not know yet.
    pub fn tell_more(&mut self) -> bool {
        !std::mem::replace(&mut self.is_more_told, true)
    }
}

/// Returns the first and last channel of each run of consecutive channels.
fn runs_of(channels: &[u16]) -> Vec<(u16, u16)> {
    channels.chunk_by(|one, next| one.checked_add(1) == Some(*next)).map(|run| (run[0], run[run.len() - 1])).collect()
}

#[cfg(test)]
mod tests {
    use strongback_store::{ChannelSpec, ChannelType, Clock, Store, StoreOptions, StreamSpec};

    use super::*;

    const T0: i64 = 1_790_000_000_000_000_000;

    fn stream(store: &Store, name: &str, channels: u16) -> Arc<Stream> {
        let spec = StreamSpec {
            key: StreamKey::new(name, []),
            source: "test".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: (0..channels).map(|n| ChannelSpec::new(format!("c{n}"), ChannelType::F64)).collect(),
        };
        store.resolve(&spec, T0).unwrap().0
    }

    #[test]
    fn what_is_kept_comes_back_of_the_streams_that_are_still_there() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default(), T0).unwrap();
        let (wide, narrow) = (stream(&store, "wide", 20), stream(&store, "narrow", 2));
        let mut unplaced = Unplaced::default();
        assert_eq!(unplaced.fewest(), None);
        assert!(unplaced.keep(&wide, &[0, 1, 2, 7, 19]) && unplaced.keep(&narrow, &[1]) && unplaced.keep(&wide, &[9]));
        assert_eq!((unplaced.runs, unplaced.fewest()), (5, Some(1)));
        // Its number now belongs to a stream with another key.
        unplaced.streams.push(UnplacedStream { id: narrow.id, key: StreamKey::new("gone", []), runs: vec![(0, 1)] });
        let told = |kept: Vec<(Arc<Stream>, Vec<u16>)>| {
            kept.into_iter().map(|(stream, channels)| (stream.id, channels)).collect::<Vec<_>>()
        };
        let streams = store.catalog().streams.clone();
        let expected = [(wide.id, vec![0, 1, 2, 7, 19, 9]), (narrow.id, vec![1])];
        assert_eq!(told(unplaced.take(&streams)), expected);
        assert!(unplaced.take(&streams).is_empty() && unplaced.fewest().is_none());
    }

    #[test]
    fn no_more_is_kept_than_there_is_a_place_for_and_that_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default(), T0).unwrap();
        let mut unplaced = Unplaced::default();
        let wide = stream(&store, "wide", 4_096);
        let scattered: Vec<u16> = (0..RUNS_MAX as u16).map(|n| 2 * n).collect();
        assert!(!unplaced.keep(&wide, &[scattered.as_slice(), &[4_500]].concat()));
        // Adjacent channels are one run, however many they are.
        let all: Vec<u16> = (0..4_096).collect();
        assert!(unplaced.keep(&wide, &all) && unplaced.runs == 1);
        for n in 1..STREAMS_MAX {
            assert!(unplaced.keep(&stream(&store, &format!("s{n}"), 1), &[0]), "{n}");
        }
        assert!(!unplaced.keep(&stream(&store, "more", 1), &[0]));
        assert!(unplaced.tell_more() && !unplaced.tell_more());
        assert_eq!(unplaced.take(&store.catalog().streams).len(), STREAMS_MAX);
        assert!(unplaced.keep(&stream(&store, "more", 1), &[0]));
    }
}
