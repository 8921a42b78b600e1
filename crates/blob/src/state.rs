//! Answers for what a store remembers of an object to notice that it changed.

use std::time::{Duration, SystemTime};

use crate::ledger::field_is_safe;

/// The outside of an object: its size and a mark that changes when its bytes are written again.
///
/// On a local disk the mark holds inode, modification time and change time: an overwrite in place that keeps
/// the length and sets the modification time back still moves the change time, which no ordinary call sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectState {
    pub(crate) size: u64,
    pub(crate) mark: String,
}

impl ObjectState {
    pub(crate) fn of_file(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let mark = format!(
            "f-{:x}-{}.{:09}-{}.{:09}",
            metadata.ino(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec()
        );
        Self { size: metadata.len(), mark }
    }

    pub(crate) fn of_object(meta: &object_store::ObjectMeta) -> Self {
        let mark = match &meta.e_tag {
            Some(tag) if field_is_safe(tag) => format!("e-{tag}"),
            _ => format!("m-{}", meta.last_modified.timestamp_micros()),
        };
        Self { size: meta.size, mark }
    }

    /// When the file changed last, as its mark tells.
    fn changed(&self) -> Option<SystemTime> {
        let (seconds, nanoseconds) = self.mark.strip_prefix("f-")?.rsplit_once('-')?.1.split_once('.')?;
        let since = Duration::new(seconds.parse().ok()?, nanoseconds.parse().ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    }

    /// True where a write after `now` must show in the mark. File systems stamp with the tick of a coarse clock
    /// (up to 10 ms; whole seconds on some), so a change within the tick of the last one would not show. The
    /// marks of remote stores are new with every write.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        if !self.mark.starts_with("f-") {
            return true;
        }
        let Some(changed) = self.changed() else { return false };
        let whole_seconds = self.mark.ends_with(".000000000");
        let tick = if whole_seconds { Duration::from_secs(2) } else { Duration::from_millis(20) };
        now.duration_since(changed).is_ok_and(|age| age > tick)
    }
}

/// That all blobs of a container were right while it had this state.
#[derive(Debug, Clone)]
pub(crate) struct Verified {
    pub(crate) state: ObjectState,
    /// When the state was seen last.
    pub(crate) seen: SystemTime,
    /// Whether an equal state proves equal bytes for all time, or only for the capture that saw it.
    pub(crate) settled: bool,
}

impl Verified {
    /// Verified in `state`, which was read at `seen`.
    pub(crate) fn new(state: ObjectState, seen: SystemTime) -> Self {
        let settled = state.is_settled(seen);
        Self { state, seen, settled }
    }

    /// True where a container that has `state` now needs no new hash for a capture that started at `since`.
    pub(crate) fn covers(&self, state: &ObjectState, since: SystemTime) -> bool {
        self.state == *state && (self.settled || self.seen >= since)
    }

    /// Notes that the state was seen again.
    pub(crate) fn see(&mut self, now: SystemTime) {
        self.seen = now;
        self.settled = self.settled || self.state.is_settled(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_settles_only_after_the_tick_of_its_last_change() {
        let at = |milliseconds: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
        let state = |time: &str| ObjectState { size: 1, mark: format!("f-1f-9.000000001-{time}") };
        assert!(!state("100.500000000").is_settled(at(100_505)));
        assert!(state("100.500000000").is_settled(at(100_530)));
        assert!(!state("100.000000000").is_settled(at(101_000)));
        assert!(!state("100.500000000").is_settled(at(50_000)), "a clock that ran backwards proves nothing");
        let verified = Verified::new(state("100.500000000"), at(100_501));
        assert!(verified.covers(&state("100.500000000"), at(100_400)));
        assert!(!verified.covers(&state("100.500000000"), at(100_600)));
        assert!(!verified.covers(&state("100.600000000"), at(100_400)));
    }
}
