//! Creating and revoking tokens.

use serde_json::json;
use task_engine_store::error::StoreError;
use task_engine_store::token::NewToken;

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::report::{OperationOutcome, OperationReport};

impl Operator {
    /// Stores a new token.
    pub async fn create_token(&self, token: &NewToken) -> Result<OperationReport, OperationError> {
        let taken = || OperationError::Conflict(token.name_taken().to_string());
        if self.is_token(token.name()).await? {
            return Err(taken());
        }
        let audited = AuditedOperation::new("tokens.create", token.name()).detail(json!({
            "role": token.role(),
            "expires_in_secs": token.expires_in().map(|time| time.as_secs()),
        }));
        let work = async {
            match self.store.add_token(token).await {
                Ok(_) => Ok(OperationReport::of(OperationOutcome::Added)),
                // A store refuses for other reasons, too; not every user may read those.
                Err(StoreError::Refused(why)) if why == token.name_taken().to_string() => {
                    Err(taken())
                }
                Err(error) => Err(error.into()),
            }
        };
        self.audited(audited, work).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, name: &str) -> Result<OperationReport, OperationError> {
        let missing = || OperationError::NotFound(format!("there is no token {name}"));
        if !self.is_token(name).await? {
            return Err(missing());
        }
        let work = async {
            match self.store.revoke_token(name).await? {
                true => Ok(OperationReport::of(OperationOutcome::Revoked)),
                false => Err(missing()),
            }
        };
        self.audited(AuditedOperation::new("tokens.revoke", name), work).await
    }

    /// Whether there is a token of this name that is not revoked.
    async fn is_token(&self, name: &str) -> Result<bool, StoreError> {
        let tokens = self.store.tokens().await?;
        Ok(tokens.iter().any(|token| token.name == name && token.revoked_at.is_none()))
    }
}
