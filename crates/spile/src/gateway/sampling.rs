//! Asks whoever operates the gateway whether its model may answer a server, where the calling client cannot be asked.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gateway::{SamplingApprover, SamplingQuestion};
use host::SystemPlatform;
use permissions::approvals::ApprovalQueue;
use permissions::{Approval, ApprovalRequest, Approver};
use spile_core::Platform as _;

/// How long a server waits for an operator.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

pub(super) struct OperatorApproval(pub(super) Arc<ApprovalQueue>);

impl SamplingApprover for OperatorApproval {
    fn is_available(&self) -> bool {
        self.0.is_available()
    }

    fn ask(&self, question: SamplingQuestion) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let SamplingQuestion { server, principal, request } = question;
        let deadline_ms = SystemPlatform::default().now_ms() + TIMEOUT.as_millis() as u64;
        let asked =
            self.0.clone().ask(ApprovalRequest::for_sampling(&server, request, principal, deadline_ms));
        Box::pin(async move {
            let answer = tokio::time::timeout(TIMEOUT, asked).await.unwrap_or(Approval::Unanswered);
            tracing::info!(server, ?answer, "whether the model answers a server");
            matches!(answer, Approval::Allowed { .. })
        })
    }
}
