//! Where journals go: a file that is appended to, or memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Takes the lines of one journal.
pub trait JournalSink {
    /// Adds a line, LF included, at the end. When it returns, the line outlives a kill of the process. After an
    /// error a part of the line may be there; the journal then truncates.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;

    /// Cuts the journal to its first `length` bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Makes everything so far outlive a loss of power.
    fn sync(&mut self) -> io::Result<()>;
}

impl JournalSink for Vec<u8> {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.extend_from_slice(line);
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        Self::truncate(self, usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: JournalSink + ?Sized> JournalSink for &mut S {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        (**self).append(line)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        (**self).truncate(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

impl<S: JournalSink + ?Sized> JournalSink for Box<S> {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        (**self).append(line)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        (**self).truncate(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

/// A file with one `write` per line. It notices when another process writes to the same file, and then refuses.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    length: u64,
    /// The directory of a new file, until it too has been made to outlive a loss of power.
    directory: Option<File>,
}

impl FileSink {
    /// Makes a new file that only its owner may read. Fails where something stands at `path` already.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Self { file: options.open(path)?, length: 0, directory: directory_of(path)? })
    }

    /// Opens a file that is there and reads what it holds, for [`crate::Journal::resume`].
    pub fn open(path: &Path) -> io::Result<(Self, Vec<u8>)> {
        let mut file = OpenOptions::new().read(true).append(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((Self { file, length: bytes.len() as u64, directory: None }, bytes))
    }

    /// Opens the file, or makes it where it is not there.
    pub fn open_or_create(path: &Path) -> io::Result<(Self, Vec<u8>)> {
        match Self::create(path) {
            Ok(sink) => Ok((sink, Vec::new())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::open(path),
            Err(error) => Err(error),
        }
    }

    /// What the file holds now.
    pub fn contents(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn check_alone(&self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length == self.length {
            return Ok(());
        }
        let detail = format!(
            "the file has {length} bytes where {} were written; another process writes to it",
            self.length
        );
        Err(io::Error::other(detail))
    }
}

impl JournalSink for FileSink {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.check_alone()?;
        let written = loop {
            match self.file.write(line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.length += written as u64;
        if written < line.len() {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the disk took only a part of the record"));
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.check_alone()?;
        if length < self.length {
            self.file.set_len(length)?;
            self.length = length;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        if let Some(directory) = &self.directory {
            directory.sync_all()?;
            self.directory = None;
        }
        Ok(())
    }
}

/// The directory that holds `path`, where the system can open one as a file.
fn directory_of(path: &Path) -> io::Result<Option<File>> {
    if !cfg!(unix) {
        return Ok(None);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new("."))).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_noticed_and_loses_nothing_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("step.journal");
        let mut first = FileSink::create(&path).unwrap();
        assert!(FileSink::create(&path).is_err());
        first.sync().unwrap();
        first.append(b"one\n").unwrap();
        let (mut second, bytes) = FileSink::open_or_create(&path).unwrap();
        assert_eq!(bytes, b"one\n");
        second.append(b"two\n").unwrap();
        assert!(first.append(b"three\n").is_err());
        assert!(first.truncate(0).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        second.truncate(4).unwrap();
        second.append(b"three\n").unwrap();
        second.sync().unwrap();
        assert_eq!(second.contents().unwrap(), b"one\nthree\n");
    }
}
