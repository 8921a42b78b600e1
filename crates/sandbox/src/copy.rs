//! Copies a base tree where the host has no overlay: by reflink where the file system has it, else by bytes.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, readlinkat, symlinkat};
use rustix::io::Errno;

use crate::beneath::{Links, open_beneath};
use crate::layer::join;
use crate::read_tools::read_names;

/// Two trees of which the second becomes what the first is.
struct Trees {
    from: OwnedFd,
    to: OwnedFd,
}

/// The files of one folder.
struct Folder {
    path: Vec<u8>,
    files: Vec<Vec<u8>>,
}

/// Copies directories, files with their mode, and links, from several threads.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    let open = |path: &Path| {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    };
    let trees = Trees { from: open(from)?, to: open(to)? };
    let folders = trees.copy_folders()?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || -> io::Result<()> {
            while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                trees.copy_files(folder)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

impl Trees {
    fn open(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_beneath(root.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused)
    }

    /// Makes directories and links, and says which files there are.
    fn copy_folders(&self) -> Result<Vec<Folder>, Errno> {
        // A folder of very many files is parted, so that one thread does not copy them alone.
        const PART: usize = 64;
        let mut folders = Vec::new();
        let mut pending = vec![Vec::new()];
        while let Some(path) = pending.pop() {
            let (from, to) = (Self::open(&self.from, &path)?, Self::open(&self.to, &path)?);
            let mut files = Vec::new();
            for named in read_names(&from)? {
                match named.kind {
                    FileType::Directory => {
                        mkdirat(&to, &*named.name, Mode::from_raw_mode(0o755))?;
                        pending.push(join(&path, &named.name));
                    }
                    FileType::Symlink => {
                        symlinkat(readlinkat(&from, &*named.name, Vec::new())?, &to, &*named.name)?
                    }
                    _ => files.push(named.name),
                }
            }
            folders
                .extend(files.chunks(PART).map(|files| Folder { path: path.clone(), files: files.to_vec() }));
        }
        Ok(folders)
    }

    fn copy_files(&self, folder: &Folder) -> io::Result<()> {
        let (from, to) = (Self::open(&self.from, &folder.path)?, Self::open(&self.to, &folder.path)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for name in &folder.files {
            let mut source =
                File::from(openat(&from, &**name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
            let mode = Mode::from_raw_mode(fstat(&source)?.st_mode & 0o777);
            let copy = openat(&to, &**name, flags, mode)?;
            fchmod(&copy, mode)?;
            // Clones extents or copies inside the kernel where the file system can.
            io::copy(&mut source, &mut File::from(copy))?;
        }
        Ok(())
    }
}
