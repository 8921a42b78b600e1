//! An open file as a stream of chunks.

use std::fs::File;
use std::io::{self, Read};

use coldframe_core::{ByteStream, SourceError};
use futures_util::stream;

const CHUNK_BYTES: usize = 256 << 10;

/// The rest of `file`. Reading blocks for the length of one chunk.
pub(crate) fn file_stream(file: File, operation: &'static str) -> ByteStream<'static> {
    Box::pin(stream::unfold(Some(file), move |file| async move {
        let mut file = file?;
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => {
                    buffer.truncate(read);
                    return Some((Ok(buffer), Some(file)));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Some((Err(SourceError::io(operation, error)), None)),
            }
        }
    }))
}
