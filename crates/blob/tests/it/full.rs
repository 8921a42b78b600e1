//! A full disk is an error of its own kind, and the store stays readable.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use coldframe_blob::{Store, capture_source};
use coldframe_core::{BlobStore, ErrorKind, SnapshotLimits};
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::support::{Tree, capture, content, run, source, stored};

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A store in memory with so many bytes of room.
#[derive(Debug)]
struct Room {
    objects: Arc<InMemory>,
    left: AtomicI64,
}

impl fmt::Display for Room {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a store with little room")
    }
}

impl ObjectStore for Room {
    fn put_opts<'a, 'b, 'c>(
        &'a self,
        at: &'b Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Answer<'c, PutResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async move {
            let length = payload.content_length() as i64;
            if self.left.fetch_sub(length, Ordering::Relaxed) < length {
                let source = Box::new(io::Error::from(io::ErrorKind::StorageFull));
                return Err(Error::Generic { store: "room", source });
            }
            self.objects.put_opts(at, payload, options).await
        })
    }

    fn put_multipart_opts<'a, 'b, 'c>(
        &'a self,
        at: &'b Path,
        options: PutMultipartOptions,
    ) -> Answer<'c, Box<dyn MultipartUpload>>
    where
        'a: 'c,
        'b: 'c,
    {
        self.objects.put_multipart_opts(at, options)
    }

    fn get_opts<'a, 'b, 'c>(&'a self, at: &'b Path, options: GetOptions) -> Answer<'c, GetResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.objects.get_opts(at, options)
    }

    fn delete_stream(&self, all: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(all)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    fn list_with_delimiter<'a, 'b, 'c>(&'a self, prefix: Option<&'b Path>) -> Answer<'c, ListResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.objects.list_with_delimiter(prefix)
    }

    fn copy_opts<'a, 'b, 'd, 'c>(
        &'a self,
        from: &'b Path,
        to: &'d Path,
        options: CopyOptions,
    ) -> Answer<'c, ()>
    where
        'a: 'c,
        'b: 'c,
        'd: 'c,
    {
        self.objects.copy_opts(from, to, options)
    }
}

#[test]
fn a_full_disk_fails_the_write_and_nothing_else() {
    run(async {
        let room = Arc::new(Room { objects: Arc::new(InMemory::new()), left: AtomicI64::new(100_000) });
        let store = Store::open(room.clone()).await.unwrap();
        let mut before = Tree::sample(1);
        before.files.retain(|(at, _)| at != "large");
        let snapshot = capture(&store, &before).await.unwrap();

        let error = store.write_bytes(content(5, 200_000)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        room.left.store(0, Ordering::Relaxed);
        let files = (0..60).map(|number| (format!("f{number}"), content(number, 700_000))).collect();
        let tree = Tree { files, ask_first: false };
        let error = capture_source(&tree, &source(), &store, SnapshotLimits::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");

        assert_eq!(store.snapshots().await.unwrap(), [snapshot.id()]);
        store.verify_snapshot(&snapshot).await.unwrap();
        assert!(!store.contains(stored(&tree.files[0].1)).await.unwrap());
        room.left.store(1 << 30, Ordering::Relaxed);
        let snapshot = capture(&store, &tree).await.unwrap();
        store.verify_snapshot(&snapshot).await.unwrap();
    });
}
