//! A signal that ends work early.

use std::sync::Arc;

use tokio::sync::watch;

/// A signal that is given once and seen by every clone.
#[derive(Debug, Clone)]
pub struct Cancellation {
    signal: Arc<watch::Sender<bool>>,
}

impl Cancellation {
    /// A signal that is not given yet.
    pub fn new() -> Self {
        Self { signal: Arc::new(watch::Sender::new(false)) }
    }

    /// Gives the signal. It cannot be taken back.
    pub fn cancel(&self) {
        self.signal.send_replace(true);
    }

    /// Whether it was given.
    pub fn is_cancelled(&self) -> bool {
        *self.signal.borrow()
    }

    /// Waits until it is given.
    pub async fn cancelled(&self) {
        let mut receiver = self.signal.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|given| *given).await;
    }
}

impl Default for Cancellation {
    fn default() -> Self {
        Self::new()
    }
}
