//! Finds everything below the root with a few threads: what to read, what is unchanged, what is left out.
//!
//! The walk opens no file but rule files. It holds one directory handle a thread and a list of directories to
//! come, so neither depth nor breadth of a tree costs handles or stack. Limits are checked against what the
//! file system says of each file, before a byte of any is read.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use coldframe_core::{ErrorKind, LimitKind, OmissionReason, SnapshotLimits, SourceError, WorkspacePath};

use crate::error::{CAPTURE, cancelled, changed, escaped, path_error};
use crate::found::{Found, Fresh, Unchanged};
use crate::last::Last;
use crate::rules::{Includes, Rules};
use crate::stat_cache::{Cursor, StatCache};
use crate::tree::{Directory, Kind, Names, Stat, Tree, is_gone};

/// A directory whose names vanish while it is listed is listed again so often before the capture gives up.
const LISTINGS: u32 = 4;
/// Metadata of version control systems. `.git` counts whatever it is, the others as directories.
const VCS_DIRECTORIES: [&str; 4] = [".hg", ".svn", ".jj", ".bzr"];

/// Room that a thread uses again for each directory.
#[derive(Debug, Default)]
struct Scratch {
    names: Names,
    unchanged: Vec<u32>,
    path: String,
    /// The number in the cache of the directory that came last; the next is mostly the one after it.
    directory: u32,
}

/// How the rules apply to what lies in a directory.
#[derive(Debug, Clone)]
enum Inside {
    /// Rules decide.
    Ordinary,
    /// An include glob named a directory above: everything is kept.
    Included,
    /// The rule ignored a directory above: only what an include glob names is kept.
    Ignored(Arc<str>),
}

#[derive(Debug)]
struct Job {
    path: String,
    rules: Rules,
    inside: Inside,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    /// How many threads have jobs of their own.
    busy: usize,
    found: Found,
    error: Option<SourceError>,
}

/// One walk over one tree, shared by its threads.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) tree: Tree,
    pub(crate) cache: StatCache,
    /// The snapshot that the cache belongs to.
    pub(crate) last: Option<Last>,
    /// Where ignore rules are honoured: the globs that overrule them.
    includes: Option<Includes>,
    /// Paths below the root that the application keeps for itself.
    reserved: Vec<String>,
    origin: String,
    limits: SnapshotLimits,
    cancelled: AtomicBool,
    entries: AtomicU64,
    bytes: AtomicU64,
    /// How many threads wait for a job.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Walk {
    /// The same walk, which leaves out the folders at these paths below the root.
    pub(crate) fn reserving(mut self, reserved: Vec<String>) -> Self {
        self.reserved = reserved;
        self
    }

    /// A walk that has not begun. Without `includes` no ignore rule is honoured. `around` are the rules above
    /// the root with the way from the outermost.
    pub(crate) fn new(
        tree: Tree,
        (cache, last): (StatCache, Option<Last>),
        includes: Option<Includes>,
        around: (Rules, String),
        limits: SnapshotLimits,
    ) -> Self {
        let (rules, origin) = around;
        let root = Job { path: String::new(), rules, inside: Inside::Ordinary };
        let queue = Queue { jobs: vec![root], ..Queue::default() };
        Self {
            tree,
            cache,
            last,
            includes,
            reserved: Vec::new(),
            origin,
            limits,
            cancelled: AtomicBool::new(false),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(queue),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the walk soon, on whichever threads it runs.
    pub(crate) fn cancel(&self) {
        // Under the lock, so that a thread that is about to wait does not miss it.
        let _queue = self.lock();
        self.cancelled.store(true, Ordering::Relaxed);
        self.wake.notify_all();
    }

    /// True once the walk was cancelled or has failed.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Works until nothing is left. Several threads may do so at once; one alone finishes the walk too.
    pub(crate) fn work(&self) {
        let mut scratch = Scratch::default();
        let mut found = Found::default();
        let (mut own, mut children, mut is_busy) = (Vec::new(), Vec::new(), false);
        while let Some(job) = self.next_job(&mut own, &mut is_busy) {
            match self.directory(&job, &mut scratch, &mut children) {
                Ok(more) => found.append(more),
                Err(error) => return self.fail(error),
            }
            // The last is taken next, so the first of a directory is walked first.
            own.extend(children.drain(..).rev());
            if own.len() > 1 && self.waiting.load(Ordering::Relaxed) > 0 {
                self.share(&mut own);
            }
        }
        self.lock().found.append(found);
    }

    /// What all threads found, after the last has ended.
    pub(crate) fn outcome(&self) -> Result<Found, SourceError> {
        let mut queue = self.lock();
        if let Some(error) = queue.error.take() {
            return Err(error);
        }
        if self.is_cancelled() {
            return Err(cancelled());
        }
        let mut found = std::mem::take(&mut queue.found);
        found.settle(&self.cache);
        Ok(found)
    }

    /// A job of the thread's own, or one that another thread shares; `None` once nothing is left to do.
    fn next_job(&self, own: &mut Vec<Job>, is_busy: &mut bool) -> Option<Job> {
        if self.is_cancelled() {
            return None;
        }
        if let Some(job) = own.pop() {
            return Some(job);
        }
        let mut queue = self.lock();
        queue.busy -= usize::from(std::mem::take(is_busy));
        loop {
            if self.is_cancelled() {
                return None;
            }
            if let Some(job) = queue.jobs.pop() {
                queue.busy += 1;
                *is_busy = true;
                return Some(job);
            }
            if queue.busy == 0 {
                self.wake.notify_all();
                return None;
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives the half that would come last to whoever waits.
    fn share(&self, own: &mut Vec<Job>) {
        let half = own.len() / 2;
        self.lock().jobs.extend(own.drain(..half));
        self.wake.notify_all();
    }

    fn fail(&self, error: SourceError) {
        let mut queue = self.lock();
        if queue.error.is_none() {
            queue.error = Some(error);
        }
        drop(queue);
        self.cancel();
    }

    /// Lists one directory, again where names vanish in between.
    fn directory(
        &self,
        job: &Job,
        scratch: &mut Scratch,
        children: &mut Vec<Job>,
    ) -> Result<Found, SourceError> {
        let mut listings = 0;
        loop {
            listings += 1;
            children.clear();
            match Visit::new(self, job, scratch).and_then(|visit| visit.run(children)) {
                Err(error) if error.kind() == ErrorKind::Changed && listings < LISTINGS => {}
                Err(error) => return Err(error),
                Ok(found) => {
                    self.count(&found)?;
                    return Ok(found);
                }
            }
        }
    }

    fn count(&self, found: &Found) -> Result<(), SourceError> {
        let entries = self.entries.fetch_add(found.entries, Ordering::Relaxed) + found.entries;
        let bytes = self.bytes.fetch_add(found.bytes, Ordering::Relaxed) + found.bytes;
        self.check(entries, bytes, None)
    }

    fn check(&self, entries: u64, bytes: u64, path: Option<&str>) -> Result<(), SourceError> {
        let limits = &self.limits;
        let exceeded = if entries > limits.max_files {
            SourceError::limit(LimitKind::MaxFiles, limits.max_files, entries)
        } else if bytes > limits.max_total_bytes {
            SourceError::limit(LimitKind::MaxTotalBytes, limits.max_total_bytes, bytes)
        } else {
            return Ok(());
        };
        Err(match path {
            Some(path) => exceeded.with_subject(path),
            None => exceeded,
        })
    }
}

/// One directory while it is looked at.
struct Visit<'a> {
    walk: &'a Walk,
    job: &'a Job,
    directory: Directory,
    rules: Rules,
    cached: Cursor<'a>,
    names: &'a mut Names,
    /// The numbers of files that are as the cache has them.
    unchanged: &'a mut Vec<u32>,
    /// The path of the name at hand; before that, of the directory with a slash.
    path: &'a mut String,
    prefix: usize,
    /// Whether anything here is kept, so that the directory is not empty.
    holds_something: bool,
    found: Found,
}

impl<'a> Visit<'a> {
    fn new(walk: &'a Walk, job: &'a Job, scratch: &'a mut Scratch) -> Result<Self, SourceError> {
        let Scratch { names, unchanged, path, directory: last } = scratch;
        let directory = walk.tree.directory(&job.path).map_err(|error| path_error(&job.path, error))?;
        directory.names(names).map_err(|error| path_error(&job.path, error))?;
        let rules = match (&walk.includes, &job.inside) {
            (Some(_), Inside::Ordinary) => {
                job.rules.enter(&walk.tree, &directory, names, &job.path, &walk.origin)?
            }
            _ => job.rules.clone(),
        };
        path.clear();
        path.push_str(&job.path);
        if !path.is_empty() {
            path.push('/');
        }
        unchanged.clear();
        let cached = walk.cache.directory(&job.path, *last);
        if let Some((number, _)) = cached.directory {
            *last = number;
        }
        Ok(Self {
            walk,
            job,
            directory,
            rules,
            cached,
            names,
            unchanged,
            prefix: path.len(),
            path,
            holds_something: false,
            found: Found::default(),
        })
    }

    fn run(mut self, children: &mut Vec<Job>) -> Result<Found, SourceError> {
        let names = std::mem::take(self.names);
        let outcome = names.iter().try_for_each(|(name, kind)| self.name(name, kind, children));
        *self.names = names;
        outcome?;
        let stays_empty = !self.holds_something && !matches!(self.job.inside, Inside::Ignored(_));
        if stays_empty && !self.job.path.is_empty() {
            let path = WorkspacePath::parse(self.job.path.as_str())?;
            self.count_entry(path.as_str(), 0)?;
            self.found.empty.push(path);
        }
        if let (Some((directory, files)), false) = (self.cached.directory, self.unchanged.is_empty()) {
            self.found.unchanged_files = self.unchanged.len();
            let all = self.unchanged.len() == files as usize;
            let files = (!all).then(|| self.unchanged.clone());
            self.found.unchanged.push(Unchanged { directory, files });
        }
        Ok(self.found)
    }

    /// One name of the directory. A file that is as the cache has it costs no allocation.
    fn name(&mut self, name: &[u8], told: Option<Kind>, children: &mut Vec<Job>) -> Result<(), SourceError> {
        if self.walk.is_cancelled() {
            return Err(cancelled());
        }
        let mut path = std::mem::take(self.path);
        path.truncate(self.prefix);
        let outcome = match std::str::from_utf8(name) {
            Ok(name) => {
                path.push_str(name);
                self.named(name, &path, told, children)
            }
            Err(_) => {
                let subject = format!("{path}{}", escaped(name));
                self.omit(OmissionReason::NonUtf8Name, subject)
            }
        };
        *self.path = path;
        outcome
    }

    fn named(
        &mut self,
        name: &str,
        path: &str,
        told: Option<Kind>,
        children: &mut Vec<Job>,
    ) -> Result<(), SourceError> {
        let (kind, stat) = match told {
            Some(kind) if kind != Kind::File => (kind, None),
            _ => match self.directory.stat(name) {
                Ok(stat) => (stat.kind, Some(stat)),
                Err(error) => return Err(path_error(path, error)),
            },
        };
        if name == ".git" || (kind == Kind::Directory && VCS_DIRECTORIES.contains(&name)) {
            return self.omit(OmissionReason::VcsMetadata, path.to_owned());
        }
        if kind == Kind::Directory && self.walk.reserved.iter().any(|reserved| reserved == path) {
            return self.omit(OmissionReason::Reserved, path.to_owned());
        }
        // A name that the cache has was a legal path when it was remembered.
        let cached = stat.as_ref().and_then(|stat| self.cached.unchanged(name.as_bytes(), stat));
        if let (Some(stat), Some(number)) = (&stat, cached) {
            return self.unchanged_file(path, stat, number);
        }
        let Ok(path) = WorkspacePath::parse(path) else {
            return self.omit(OmissionReason::IllegalName, path.to_owned());
        };
        let Some(inside) = self.inside(path.as_str(), kind == Kind::Directory) else { return Ok(()) };
        match (kind, stat) {
            (Kind::Directory, _) => {
                self.holds_something |= !matches!(inside, Inside::Ignored(_));
                children.push(Job { path: path.into(), rules: self.rules.clone(), inside });
                Ok(())
            }
            (Kind::File, Some(stat)) => {
                self.check_file(path.as_str(), &stat)?;
                self.found.fresh.push(Fresh { path, size: stat.size });
                Ok(())
            }
            (Kind::File, None) => Err(changed(path.as_str(), "its kind changed")),
            (Kind::Symlink, _) => self.link(path, name),
            (Kind::Fifo, _) => self.omit(OmissionReason::Fifo, path.into()),
            (Kind::Socket, _) => self.omit(OmissionReason::Socket, path.into()),
            (Kind::Device, _) => self.omit(OmissionReason::Device, path.into()),
        }
    }

    fn unchanged_file(&mut self, path: &str, stat: &Stat, number: u32) -> Result<(), SourceError> {
        let no_rule = self.rules.is_empty() && matches!(self.job.inside, Inside::Ordinary);
        if no_rule || self.inside(path, false).is_some() {
            self.check_file(path, stat)?;
            self.unchanged.push(number);
        }
        Ok(())
    }

    /// How the rules apply from `path` on, or `None` where it is left out, which is counted here.
    fn inside(&mut self, path: &str, is_directory: bool) -> Option<Inside> {
        let (Some(includes), false) = (&self.walk.includes, matches!(self.job.inside, Inside::Included))
        else {
            return Some(self.job.inside.clone());
        };
        if includes.names(path, is_directory) {
            self.found.kept_inside_ignored |= matches!(self.job.inside, Inside::Ignored(_));
            return Some(if is_directory { Inside::Included } else { Inside::Ordinary });
        }
        let rule: Arc<str> = match &self.job.inside {
            Inside::Ignored(rule) => rule.clone(),
            _ if self.rules.is_empty() => return Some(Inside::Ordinary),
            _ if self.walk.origin.is_empty() => match self.rules.ignored_by(path, is_directory) {
                Some(rule) => rule.into(),
                None => return Some(Inside::Ordinary),
            },
            _ => {
                let from_top = format!("{}{path}", self.walk.origin);
                match self.rules.ignored_by(&from_top, is_directory) {
                    Some(rule) => rule.into(),
                    None => return Some(Inside::Ordinary),
                }
            }
        };
        if is_directory && includes.leads_into(path) {
            return Some(Inside::Ignored(rule));
        }
        match self.found.ignored.get_mut(&*rule) {
            Some(count) => *count += 1,
            None => {
                self.found.ignored.insert(rule.as_ref().to_owned(), 1);
            }
        }
        None
    }

    fn check_file(&mut self, path: &str, stat: &Stat) -> Result<(), SourceError> {
        let limit = self.walk.limits.max_file_bytes;
        if stat.size > limit {
            return Err(SourceError::limit(LimitKind::MaxFileBytes, limit, stat.size).with_subject(path));
        }
        self.count_entry(path, stat.size)
    }

    fn link(&mut self, path: WorkspacePath, name: &str) -> Result<(), SourceError> {
        let target = match self.directory.link(name) {
            Ok(target) => target,
            Err(error) if is_gone(&error) || error.kind() == std::io::ErrorKind::InvalidInput => {
                return Err(changed(path.as_str(), "the link vanished or became something else"));
            }
            Err(error) => return Err(path_error(path.as_str(), error)),
        };
        match String::from_utf8(target) {
            Ok(target) => {
                self.count_entry(path.as_str(), 0)?;
                self.found.links.push((path, target));
                Ok(())
            }
            Err(_) => self.omit(OmissionReason::NonUtf8Target, path.into()),
        }
    }

    fn count_entry(&mut self, path: &str, bytes: u64) -> Result<(), SourceError> {
        self.holds_something = true;
        self.found.entries += 1;
        self.found.bytes = self.found.bytes.saturating_add(bytes);
        let entries = self.walk.entries.load(Ordering::Relaxed) + self.found.entries;
        let bytes = self.walk.bytes.load(Ordering::Relaxed).saturating_add(self.found.bytes);
        self.walk.check(entries, bytes, Some(path))
    }

    /// Reports a path that is left out. They cost memory as entries do, so one directory may not have more.
    fn omit(&mut self, reason: OmissionReason, subject: String) -> Result<(), SourceError> {
        let (met, limit) = (self.found.omitted.len() as u64 + 1, self.walk.limits.max_files.max(1000));
        if met > limit {
            let detail =
                format!("more than {limit} paths of {:?} must be left out; ignore them", self.job.path);
            let kind = ErrorKind::LimitExceeded(LimitKind::MaxFiles);
            return Err(SourceError::new(kind, CAPTURE, detail).with_subject(subject));
        }
        self.found.omit(reason, subject);
        Ok(())
    }
}
