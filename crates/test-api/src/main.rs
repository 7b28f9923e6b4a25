//! Serves the API of the shop: `cargo run -p test-api -- 127.0.0.1:8765`. The token is `shop-token`.

use std::io::Write;

use test_api::ApiServer;
use test_api::shop::Shop;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8765".to_owned());
    let shop = Shop::default();
    let server = ApiServer::start_at(&address, move |request| shop.answer(request))?;
    writeln!(std::io::stdout(), "{}", server.url())?;
    loop {
        std::thread::park();
    }
}
