//! Reads files so that what is handed on is what the file held at one moment, or says that it changed.
//!
//! A file is taken as still where its marks are the same before and after it was read. Kernels stamp files
//! with a clock that ticks every few milliseconds, so a file changed within the current tick could change
//! again without a new stamp; such a file is left alone until its stamp is old enough to tell.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use coldframe_core::{
    Digest, InlineFile, LimitKind, NewFile, SnapshotWriter, SourceError, Stored, WorkspacePath,
};
use futures_util::stream;
use tokio::task::JoinHandle;

use crate::error::{cancelled, changed, path_error};
use crate::found::Fresh;
use crate::stat_cache::{Marks, Remembered};
use crate::tree::{Kind, Moment, Stat, stat_of};
use crate::walk::Walk;

/// Files up to this size travel whole, in batches.
pub(crate) const INLINE_BYTES: u64 = 1 << 20;
/// A batch has at most so many files and plans for at most so many bytes: what is read is still in the processor's
/// cache when it is hashed and packed, and its memory is used again for the next.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 1 << 20;
/// Files may have grown since the walk. Beyond this, the rest of a batch travels as streams.
const BATCH_HARD_BYTES: usize = 3 << 20;
const CHUNK_BYTES: usize = 1 << 20;
/// A changing file is read once and three times again.
const ATTEMPTS: u32 = 4;
/// No kernel's stamp clock ticks slower than this.
const TICK: Duration = Duration::from_millis(20);
/// A stamp without a fraction may come from a file system that keeps whole or every other second.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// Several small files, or one large one.
#[derive(Debug)]
pub(crate) enum Work {
    Batch(Vec<Fresh>),
    Large(WorkspacePath),
}

/// Parts what must be read into pieces of work of a bounded size.
pub(crate) fn plan(fresh: Vec<Fresh>) -> Vec<Work> {
    let (mut work, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for file in fresh {
        if file.size > INLINE_BYTES {
            work.push(Work::Large(file.path));
            continue;
        }
        if batch.len() == BATCH_FILES || bytes + file.size > BATCH_BYTES {
            work.push(Work::Batch(std::mem::take(&mut batch)));
            bytes = 0;
        }
        bytes += file.size;
        batch.push(file);
    }
    if !batch.is_empty() {
        work.push(Work::Batch(batch));
    }
    work
}

/// Runs blocking work beside the runtime.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, SourceError> {
    joined(tokio::task::spawn_blocking(work)).await
}

async fn joined<T>(handle: JoinHandle<Result<T, SourceError>>) -> Result<T, SourceError> {
    match handle.await {
        Ok(outcome) => outcome,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(cancelled()),
    }
}

/// Reads one piece of work, hands it to the writer and says what may be remembered.
pub(crate) async fn send(
    walk: Arc<Walk>,
    work: Work,
    writer: &dyn SnapshotWriter,
) -> Result<Vec<Remembered>, SourceError> {
    match work {
        Work::Large(path) => Ok(send_large(&walk, path, writer).await?.into_iter().collect()),
        Work::Batch(files) => send_batch(walk, files, writer).await,
    }
}

#[derive(Default)]
struct Batch {
    files: Vec<InlineFile>,
    marks: Vec<Still>,
    large: Vec<WorkspacePath>,
}

/// The marks under which a file was still, and whether they may be trusted later too.
#[derive(Debug, Clone, Copy)]
struct Still {
    stat: Stat,
    lasting: bool,
}

impl Still {
    fn remember(&self, path: WorkspacePath, digest: Digest) -> Option<Remembered> {
        self.lasting.then(|| {
            let Stat { device, .. } = self.stat;
            Remembered { path, device, marks: Marks::of(&self.stat), digest }
        })
    }
}

async fn send_batch(
    walk: Arc<Walk>,
    files: Vec<Fresh>,
    writer: &dyn SnapshotWriter,
) -> Result<Vec<Remembered>, SourceError> {
    let max_file_bytes = writer.limits().max_file_bytes;
    let reader = Arc::clone(&walk);
    let batch = blocking(move || read_batch(&reader, files, max_file_bytes)).await?;
    let paths: Vec<WorkspacePath> = batch.files.iter().map(|file| file.path.clone()).collect();
    let stored: Vec<Stored> = writer.files(batch.files).await?;
    let mut remembered = Vec::with_capacity(paths.len());
    for ((path, still), stored) in paths.into_iter().zip(batch.marks).zip(stored) {
        remembered.extend(still.remember(path, stored.digest));
    }
    for path in batch.large {
        remembered.extend(send_large(&walk, path, writer).await?);
    }
    Ok(remembered)
}

fn read_batch(walk: &Walk, files: Vec<Fresh>, max_file_bytes: u64) -> Result<Batch, SourceError> {
    let mut batch = Batch::default();
    let mut bytes = 0;
    for file in files {
        if walk.is_cancelled() {
            return Err(cancelled());
        }
        if bytes > BATCH_HARD_BYTES {
            batch.large.push(file.path);
            continue;
        }
        match read_whole(walk, &file.path, max_file_bytes)? {
            None => batch.large.push(file.path),
            Some((still, content)) => {
                bytes += content.len();
                batch.files.push(InlineFile { path: file.path, executable: still.stat.executable, content });
                batch.marks.push(still);
            }
        }
    }
    Ok(batch)
}

/// The whole content of a still file, or `None` where it has grown too large for that.
fn read_whole(
    walk: &Walk,
    path: &WorkspacePath,
    max_file_bytes: u64,
) -> Result<Option<(Still, Vec<u8>)>, SourceError> {
    let failed = |error| path_error(path.as_str(), error);
    for _ in 0..ATTEMPTS {
        let Some((mut file, still)) = open_still(walk, path)? else { continue };
        let size = still.stat.size;
        if size > max_file_bytes {
            return Err(SourceError::limit(LimitKind::MaxFileBytes, max_file_bytes, size).with_subject(path));
        }
        if size > INLINE_BYTES {
            return Ok(None);
        }
        let content = read_to_end(&mut file, size).map_err(failed)?;
        if content.len() as u64 > INLINE_BYTES || stat_of(&file).map_err(failed)? != still.stat {
            continue;
        }
        if content.len() as u64 == size {
            return Ok(Some((still, content)));
        }
        // Files that a kernel makes up as they are read tell no true size. Two equal readings must do.
        let Some((mut file, _)) = open_still(walk, path)? else { continue };
        if read_to_end(&mut file, size).map_err(failed)? == content {
            return Ok(Some((Still { lasting: false, ..still }, content)));
        }
    }
    Err(changed(path.as_str(), "it did not stay the same while it was read"))
}

fn read_to_end(file: &mut File, expected: u64) -> std::io::Result<Vec<u8>> {
    // One byte more than expected, so that the end is met without growing the buffer.
    let mut content = Vec::with_capacity(expected.min(INLINE_BYTES) as usize + 1);
    file.take(INLINE_BYTES + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Opens a file whose last change is old enough that the next one would show, or `None` where it is changed all
/// the time. Blocks for one tick of the stamp clock at most.
fn open_still(walk: &Walk, path: &WorkspacePath) -> Result<Option<(File, Still)>, SourceError> {
    let failed = |error| path_error(path.as_str(), error);
    let file = walk.tree.file(path.as_str()).map_err(failed)?;
    let mut stat = stat_of(&file).map_err(failed)?;
    if stat.kind != Kind::File {
        return Err(changed(path.as_str(), "it became something else"));
    }
    if let Some(rest) = until_old(stat.changed, Moment::now()) {
        std::thread::sleep(rest);
        stat = stat_of(&file).map_err(failed)?;
    }
    let now = Moment::now();
    if until_old(stat.changed, now).is_some() {
        return Ok(None);
    }
    // A stamp from the future proves nothing once the clock arrives there.
    let lasting = stat.changed < now;
    Ok(Some((file, Still { stat, lasting })))
}

/// How long to wait until a change would get another stamp than `changed`; `None` where it already would.
fn until_old(changed: Moment, now: Moment) -> Option<Duration> {
    let tick = if changed.nanoseconds == 0 { COARSE_TICK } else { TICK };
    let (age, tick) = (now.nanos() - changed.nanos(), tick.as_nanos() as i128);
    (age > -tick && age <= tick).then(|| {
        // Both terms are at most two ticks apart, which fits.
        Duration::from_nanos((tick - age) as u64) + Duration::from_millis(1)
    })
}

/// Sends one file as a stream, again where it changes meanwhile.
async fn send_large(
    walk: &Arc<Walk>,
    path: WorkspacePath,
    writer: &dyn SnapshotWriter,
) -> Result<Option<Remembered>, SourceError> {
    for _ in 0..ATTEMPTS {
        let (opener, name) = (Arc::clone(walk), path.clone());
        let Some((file, still)) = blocking(move || open_still(&opener, &name)).await? else { continue };
        let (executable, size) = (still.stat.executable, Some(still.stat.size));
        let new = NewFile { path: path.clone(), executable, size };
        let reading = Reading { file, path: path.clone(), still, sent: 0 };
        let content = stream::try_unfold(reading.next(), |pending| async move {
            let (reading, chunk) = joined(pending).await?;
            // The next chunk is read while this one is hashed and stored.
            Ok(chunk.map(|chunk| (chunk, reading.next())))
        });
        match writer.file(new, Box::pin(content)).await {
            Ok(stored) => return Ok(still.remember(path, stored.digest)),
            Err(error) if error.kind() == coldframe_core::ErrorKind::Changed => {}
            Err(error) => return Err(error),
        }
    }
    Err(changed(path.as_str(), "it did not stay the same while it was read"))
}

/// A large file between two chunks.
struct Reading {
    file: File,
    path: WorkspacePath,
    still: Still,
    sent: u64,
}

type Chunk = Result<(Reading, Option<Vec<u8>>), SourceError>;

impl Reading {
    fn next(self) -> JoinHandle<Chunk> {
        tokio::task::spawn_blocking(move || self.read())
    }

    /// The next chunk; `None` at the end of a file that stayed the same, an error at the end of any other.
    fn read(mut self) -> Chunk {
        let rest = self.still.stat.size - self.sent;
        let mut chunk = Vec::with_capacity((CHUNK_BYTES as u64).min(rest) as usize);
        let failed = |error| path_error(self.path.as_str(), error);
        (&self.file).take((CHUNK_BYTES as u64).min(rest)).read_to_end(&mut chunk).map_err(failed)?;
        if chunk.is_empty() {
            let after = stat_of(&self.file).map_err(failed)?;
            if rest > 0 || after != self.still.stat {
                return Err(changed(self.path.as_str(), "it changed while it was read"));
            }
            return Ok((self, None));
        }
        self.sent += chunk.len() as u64;
        Ok((self, Some(chunk)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(size: u64) -> Fresh {
        Fresh { path: WorkspacePath::parse("f").unwrap(), size }
    }

    #[test]
    fn work_is_bounded_in_files_and_bytes() {
        let work = plan((0..130).map(|_| fresh(10)).collect());
        let sizes: Vec<usize> = work
            .iter()
            .map(|work| match work {
                Work::Batch(files) => files.len(),
                Work::Large(_) => 0,
            })
            .collect();
        assert_eq!(sizes, [64, 64, 2]);
        assert_eq!(plan((0..9).map(|_| fresh(INLINE_BYTES)).collect()).len(), 9);
        assert_eq!(plan((0..9).map(|_| fresh(INLINE_BYTES / 4)).collect()).len(), 3);
        assert!(matches!(plan(vec![fresh(INLINE_BYTES + 1)])[..], [Work::Large(_)]));
        assert!(plan(Vec::new()).is_empty());
    }

    #[test]
    fn a_stamp_is_old_once_another_tick_must_have_passed() {
        let at = |seconds, nanoseconds| Moment { seconds, nanoseconds };
        let now = at(100, 500_000_000);
        assert!(until_old(at(100, 499_999_999), now).is_some());
        assert!(until_old(at(100, 481_000_000), now).is_some());
        assert_eq!(until_old(at(100, 479_000_000), now), None);
        assert_eq!(until_old(at(200, 1), now), None, "a change now would get an earlier stamp");
        assert!(until_old(at(100, 510_000_000), now).is_some());
        assert!(until_old(at(99, 0), now).is_some(), "whole seconds may be all that is kept");
        assert_eq!(until_old(at(98, 0), now), None);
        assert!(until_old(at(100, 499_999_999), now).unwrap() < Duration::from_millis(25));
    }
}
