//! TLS with libpq's modes: `disable`, `prefer` and `require` encrypt without verifying
//! the server, `verify-full` verifies it.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_platform_verifier::ConfigVerifierExt;
use task_engine_store::error::StoreError;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Removes `sslmode=verify-full` (or `verify-ca`, which is treated the same) from a URL,
/// because the driver does not know it. True if it was there.
pub(crate) fn take_verify(url: &str) -> (String, bool) {
    for mode in ["sslmode=verify-full", "sslmode=verify-ca"] {
        if url.contains(mode) {
            return (url.replace(mode, "sslmode=require"), true);
        }
    }
    (url.to_owned(), false)
}

pub(crate) fn connector(verify: bool) -> Result<MakeRustlsConnect, StoreError> {
    let refused = |e: rustls::Error| StoreError::Refused(format!("TLS cannot be set up: {e}"));
    let provider = Arc::new(ring::default_provider());
    let config = if verify {
        // The platform verifier takes the process-wide provider; an application
        // that has chosen one keeps it.
        let _ = provider.as_ref().clone().install_default();
        ClientConfig::with_platform_verifier().map_err(refused)?
    } else {
        ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
            .with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(config))
}

/// Accepts every certificate, as `sslmode=require` has always meant, but still
/// checks that the server has the key to the one it shows.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
