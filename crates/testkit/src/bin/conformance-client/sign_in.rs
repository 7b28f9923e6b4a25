//! The scenarios in which the server wants a token. The user is played by a browser that follows redirects: the
//! authorization servers of the suite agree at once.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use json::Json;
use servers::config::OAuthSettings;
use servers::oauth::{
    Authorizer, AuthorizerClient, ClientProof, CredentialStore, MachineClient, MachineGrant, SigningKey,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use upstream::{Connection, ConnectionOptions, OpenError, Target};
use url::Url;
use wire::ListKind;
use wire::client::{ClientCall, ClientError};
use wire::method::Method;

use super::AcceptingHandler;

/// The document that the suite expects as the client's id where documents are accepted.
const CLIENT_DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

pub async fn run(url: &str, scenario: &str, options: ConnectionOptions) -> Result<()> {
    let Target::Http(url) = Target::parse(url)? else { bail!("`{url}` is not an HTTP address") };
    let folder = tempfile::tempdir()?;
    let platform = Arc::new(host::SystemPlatform::default());
    let store = CredentialStore::new(folder.path().to_owned(), platform, options.outbound.clone());
    let (settings, who) = registration(scenario)?;
    let authorizer = Authorizer::new(url.clone(), settings, who, store).await?;
    let mut client = SignedInClient { url, options, authorizer };
    let connection = client.connect().await?;
    let played = client.use_server(&connection).await;
    connection.close().await;
    played
}

/// What the user wrote into the entry of the server: the document of this client, or a client that was registered there.
fn registration(scenario: &str) -> Result<(OAuthSettings, AuthorizerClient)> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".to_owned());
    let context = Json::parse(&context)?.to_doc();
    let text = |key: &str| {
        let text = context.root().get(key).and_then(|text| Some(text.str()?.into_owned()));
        text.with_context(|| format!("the context has no `{key}`"))
    };
    let machine = |proof: ClientProof, grant: MachineGrant| -> Result<_> {
        let client = MachineClient { client_id: text("client_id")?, proof, grant };
        Ok((OAuthSettings::default(), AuthorizerClient::Machine(Box::new(client))))
    };
    let with_id =
        |client_id: String| OAuthSettings { client_id: Some(client_id), ..OAuthSettings::default() };
    match scenario {
        "auth/pre-registration" => {
            let client_secret = Some(text("client_secret")?);
            Ok((with_id(text("client_id")?), AuthorizerClient::User { client_secret }))
        }
        "auth/client-credentials-basic" => {
            machine(ClientProof::Secret(text("client_secret")?), MachineGrant::ClientCredentials)
        }
        "auth/client-credentials-jwt" => {
            let key = SigningKey::from_pem(&text("private_key_pem")?)?;
            machine(ClientProof::PrivateKey(Box::new(key)), MachineGrant::ClientCredentials)
        }
        "auth/wif-jwt-bearer" => {
            machine(ClientProof::None, MachineGrant::WorkloadIdentity { assertion: text("valid_jwt")? })
        }
        "auth/enterprise-managed-authorization" | "auth/cross-app-access-complete-flow" => {
            let grant = MachineGrant::Enterprise {
                token_endpoint: text("idp_token_endpoint")?,
                client_id: text("idp_client_id")?,
                id_token: text("idp_id_token")?,
            };
            machine(ClientProof::Secret(text("client_secret")?), grant)
        }
        _ => Ok((with_id(CLIENT_DOCUMENT.to_owned()), AuthorizerClient::User { client_secret: None })),
    }
}

struct SignedInClient {
    url: Url,
    options: ConnectionOptions,
    authorizer: Authorizer,
}

impl SignedInClient {
    async fn connect(&mut self) -> Result<Connection> {
        loop {
            let options = ConnectionOptions { token: Some(self.authorizer.token()), ..self.options.clone() };
            let target = Target::Http(self.url.clone());
            match Connection::open(&target, options, Arc::new(AcceptingHandler)).await {
                Ok(connection) => {
                    self.authorizer.on_accepted();
                    return Ok(connection);
                }
                Err(OpenError::Failed(ClientError::Unauthorized { challenge, .. })) => {
                    self.authorizer.on_refused(challenge.as_deref(), visit).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn use_server(&mut self, server: &Connection) -> Result<()> {
        let tools = self.send(async || server.list(ListKind::Tools, None).await).await?;
        for tool in &tools {
            let params = Json::object(|params| {
                params.str("name", &super::item_name(tool)).raw("arguments", "{}");
            });
            self.send(async || server.call(ClientCall::new(Method::ToolsCall, params.clone()), None).await)
                .await?;
        }
        Ok(())
    }

    /// Sends a request until it is not refused for want of rights.
    async fn send<T>(&mut self, request: impl AsyncFn() -> Result<T, ClientError>) -> Result<T> {
        loop {
            match request().await {
                Ok(answer) => {
                    self.authorizer.on_accepted();
                    return Ok(answer);
                }
                Err(ClientError::Unauthorized { challenge, .. }) => {
                    self.authorizer.on_refused(challenge.as_deref(), visit).await?;
                }
                Err(error) => return Err(anyhow::anyhow!("{error}")),
            }
        }
    }
}

/// Opens an address as a browser does, and follows its redirects.
async fn visit(url: &Url) {
    if let Err(error) = follow(url.clone()).await {
        eprintln!("the browser: {error:#}");
    }
}

async fn follow(mut url: Url) -> Result<()> {
    for _ in 0..5 {
        let host = url.host_str().context("no host")?.to_owned();
        let port = url.port_or_known_default().context("no port")?;
        let mut stream = TcpStream::connect((host.as_str(), port)).await?;
        let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        let response = String::from_utf8_lossy(&response).into_owned();
        let head = response.split("\r\n\r\n").next().unwrap_or_default();
        let location = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
        });
        match location {
            Some(location) => url = url.join(&location)?,
            None => {
                let status = head.split(' ').nth(1).unwrap_or_default();
                ensure!(status == "200", "{url}: {}", head.lines().next().unwrap_or_default());
                return Ok(());
            }
        }
    }
    bail!("too many redirects")
}
