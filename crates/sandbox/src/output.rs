//! Takes in what a command prints: head and tail in memory, the whole on disk up to a bound.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use coldframe_core::{BlobStore, OutputText, SourceError};

use crate::dir::escaped;
use crate::file_stream::file_stream;

/// The bytes of a stream's beginning and of its end that an answer shows.
const SHOWN_BYTES: usize = 16 << 10;
/// Streams up to this size never touch the disk.
const MEMORY_BYTES: usize = 256 << 10;

/// One stream of a command.
pub(crate) struct Capture {
    pipe: File,
    spool: PathBuf,
    limit: u64,
    total: u64,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    memory: Vec<u8>,
    file: Option<File>,
    stored: u64,
    open: bool,
}

impl Capture {
    /// Reads the non-blocking `pipe` and stores at most `limit` bytes, in `spool` where they are many.
    pub(crate) fn new(pipe: OwnedFd, spool: PathBuf, limit: u64) -> Self {
        Self {
            pipe: File::from(pipe),
            spool,
            limit,
            total: 0,
            head: Vec::new(),
            tail: VecDeque::new(),
            memory: Vec::new(),
            file: None,
            stored: 0,
            open: true,
        }
    }

    pub(crate) fn pipe(&self) -> Option<&File> {
        self.open.then_some(&self.pipe)
    }

    /// Reads what is there now, but no more than `most` bytes, so that time limits are looked at in between.
    pub(crate) fn drain(&mut self, most: usize) -> io::Result<()> {
        let mut buffer = [0u8; 64 << 10];
        let mut taken = 0;
        while self.open && taken < most {
            match self.pipe.read(&mut buffer) {
                Ok(0) => self.open = false,
                Ok(read) => {
                    taken += read;
                    self.take(&buffer[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = SHOWN_BYTES - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(SHOWN_BYTES)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(SHOWN_BYTES);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
        let keep = bytes.len().min(usize::try_from(self.limit - self.stored).unwrap_or(usize::MAX));
        self.store(&bytes[..keep]);
    }

    /// Keeps bytes. Where the disk takes no more, what was kept so far stays and the rest is only counted.
    fn store(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.file.is_none() && self.memory.len() + bytes.len() <= MEMORY_BYTES {
            self.memory.extend_from_slice(bytes);
            self.stored += bytes.len() as u64;
            return;
        }
        match self.spill(bytes) {
            Ok(()) => self.stored += bytes.len() as u64,
            Err(error) => {
                tracing::warn!(%error, "the output of a command is not stored further");
                self.limit = self.stored;
            }
        }
    }

    fn spill(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let options = File::options().read(true).write(true).create(true).truncate(true).to_owned();
                let mut file = options.open(&self.spool)?;
                std::fs::remove_file(&self.spool)?;
                file.write_all(&self.memory)?;
                self.memory = Vec::new();
                self.file.insert(file)
            }
        };
        file.write_all(bytes)
    }

    /// Puts the stored bytes into the blob store and makes the text of the answer.
    pub(crate) async fn finish(mut self, store: &dyn BlobStore) -> Result<OutputText, SourceError> {
        let blob = match self.file.take() {
            None if self.memory.is_empty() => None,
            None => Some(store.write_bytes(std::mem::take(&mut self.memory)).await?.digest),
            Some(mut file) => {
                // A write that failed may have left a part of itself.
                file.set_len(self.stored)
                    .and_then(|()| file.rewind())
                    .map_err(|error| SourceError::io("read captured output", error))?;
                Some(store.write(file_stream(file, "read captured output")).await?.digest)
            }
        };
        let tail: Vec<u8> = self.tail.into();
        let left_out = self.total - (self.head.len() + tail.len()) as u64;
        let (text, utf8) = show(&self.head, &tail, left_out);
        Ok(OutputText {
            text,
            bytes: self.total,
            stored_bytes: self.stored,
            blob,
            truncated: left_out > 0,
            utf8,
        })
    }
}

/// Joins head and tail. Where bytes are left out, a character that the cut went through is left out too.
fn show(head: &[u8], tail: &[u8], left_out: u64) -> (String, bool) {
    if left_out == 0 {
        let whole = [head, tail].concat();
        return (escaped(&whole), std::str::from_utf8(&whole).is_ok());
    }
    let head = match std::str::from_utf8(head) {
        Err(error) if error.error_len().is_none() => &head[..error.valid_up_to()],
        _ => head,
    };
    let lead = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    let tail = &tail[lead..];
    let text = format!("{}\n[… {left_out} bytes left out …]\n{}", escaped(head), escaped(tail));
    (text, std::str::from_utf8(head).is_ok() && std::str::from_utf8(tail).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_marked_and_a_cut_splits_no_character() {
        assert_eq!(show(b"ok \xff\xfe end", b"", 0), ("ok \\xff\\xfe end".to_owned(), false));
        let (text, utf8) = show("a\u{e9}".as_bytes().split_at(2).0, &"\u{e9}b".as_bytes()[1..], 7);
        assert_eq!((text.as_str(), utf8), ("a\n[… 7 bytes left out …]\nb", true));
        assert_eq!(show(b"", b"", 0), (String::new(), true));
    }
}
