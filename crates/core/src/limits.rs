//! Bounds on what a capture may take.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bounds on a capture, checked by the writer before it takes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnapshotLimits {
    /// The most entries: files, symlinks and empty directories together.
    pub max_files: u64,
    /// The most bytes of all files together.
    pub max_total_bytes: u64,
    /// The most bytes of one file.
    pub max_file_bytes: u64,
    /// How many reads, requests or writes may be under way at once.
    pub concurrency: usize,
}

impl SnapshotLimits {
    /// What a person captures on a workstation: 200,000 files, 8 GiB, 2 GiB a file.
    pub const fn workstation() -> Self {
        Self { max_files: 200_000, max_total_bytes: 8 << 30, max_file_bytes: 2 << 30, concurrency: 8 }
    }
}

impl Default for SnapshotLimits {
    /// 5,000 files, 100 MiB, 10 MiB a file, 8 at once.
    fn default() -> Self {
        Self { max_files: 5_000, max_total_bytes: 100 << 20, max_file_bytes: 10 << 20, concurrency: 8 }
    }
}

/// Which bound was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// [`SnapshotLimits::max_files`].
    MaxFiles,
    /// [`SnapshotLimits::max_total_bytes`].
    MaxTotalBytes,
    /// [`SnapshotLimits::max_file_bytes`].
    MaxFileBytes,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MaxFiles => "max_files",
            Self::MaxTotalBytes => "max_total_bytes",
            Self::MaxFileBytes => "max_file_bytes",
        })
    }
}
