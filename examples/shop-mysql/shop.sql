-- A small shop: run as the owner of an empty database, with mariadb shop < shop.sql.

SET NAMES utf8mb4;
SET time_zone = '+00:00';

CREATE TABLE customers (
  id integer AUTO_INCREMENT PRIMARY KEY,
  name varchar(100) NOT NULL,
  email varchar(100) NOT NULL UNIQUE,
  country char(2) NOT NULL COMMENT 'ISO 3166 code, such as DE',
  created_at timestamp NOT NULL DEFAULT current_timestamp
) COMMENT = 'People and companies who have ordered at least once.';

CREATE TABLE products (
  sku varchar(20) PRIMARY KEY,
  title varchar(100) NOT NULL,
  details text NOT NULL,
  price decimal(10, 2) NOT NULL,
  in_stock integer NOT NULL,
  CONSTRAINT price_is_positive CHECK (price > 0),
  CONSTRAINT stock_is_not_negative CHECK (in_stock >= 0),
  FULLTEXT KEY products_words (title, details)
) COMMENT = 'What the shop sells.';

CREATE TABLE orders (
  id integer AUTO_INCREMENT PRIMARY KEY,
  customer_id integer NOT NULL,
  status enum('open', 'paid', 'shipped', 'cancelled') NOT NULL DEFAULT 'open',
  ordered_on date NOT NULL,
  note text,
  FOREIGN KEY (customer_id) REFERENCES customers (id)
) COMMENT = 'Orders, one row each; their lines are in order_lines.';

CREATE TABLE order_lines (
  order_id integer NOT NULL,
  line integer NOT NULL,
  sku varchar(20) NOT NULL,
  quantity integer NOT NULL CHECK (quantity > 0),
  unit_price decimal(10, 2) NOT NULL,
  amount decimal(12, 2) AS (quantity * unit_price) STORED,
  PRIMARY KEY (order_id, line),
  FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE,
  FOREIGN KEY (sku) REFERENCES products (sku)
) COMMENT = 'Which products an order has, with the price at that time.';

INSERT INTO customers (id, name, email, country, created_at) VALUES
  (1, 'Ann Abel', 'ann@example.com', 'DE', '2026-01-05 09:00:00'),
  (2, 'Béla Bartók', 'bela@example.com', 'HU', '2026-01-20 10:30:00'),
  (3, 'Chidi Okoro', 'chidi@example.com', 'NG', '2026-02-02 16:45:00'),
  (4, 'Dora Diaz', 'dora@example.com', 'ES', '2026-03-11 08:15:00');
INSERT INTO products VALUES
  ('CHAIR-1', 'Oak chair', 'A running favourite: solid oak, four legs', 129.90, 12),
  ('TABLE-1', 'Oak table', 'Seats six people', 449.00, 3),
  ('LAMP-1', 'Reading lamp', 'Warm light for long evenings', 39.50, 40),
  ('SHELF-1', 'Wall shelf', 'Holds forty books', 74.25, 0);
INSERT INTO orders (id, customer_id, status, ordered_on, note) VALUES
  (1, 1, 'shipped', '2026-02-01', NULL),
  (2, 2, 'paid', '2026-02-14', 'ring twice'),
  (3, 1, 'open', '2026-03-01', NULL),
  (4, 3, 'cancelled', '2026-03-05', 'ordered by mistake'),
  (5, 4, 'paid', '2026-03-15', NULL);
INSERT INTO order_lines (order_id, line, sku, quantity, unit_price) VALUES
  (1, 1, 'CHAIR-1', 4, 119.90), (1, 2, 'TABLE-1', 1, 449.00),
  (2, 1, 'LAMP-1', 2, 39.50),
  (3, 1, 'CHAIR-1', 1, 129.90), (3, 2, 'LAMP-1', 1, 39.50),
  (4, 1, 'SHELF-1', 3, 74.25),
  (5, 1, 'TABLE-1', 1, 449.00), (5, 2, 'CHAIR-1', 6, 129.90);
ALTER TABLE customers AUTO_INCREMENT = 101;
ALTER TABLE orders AUTO_INCREMENT = 101;

-- The role of the server: it reads everything, and writes what its tools write. CREATE is for the table of idempotency records, which
-- the server creates with the first one.
CREATE USER shop_server@localhost;
GRANT SELECT, CREATE ON shop.* TO shop_server@localhost;
GRANT INSERT ON shop.orders TO shop_server@localhost;
GRANT UPDATE ON shop.orders TO shop_server@localhost;
GRANT UPDATE ON shop.products TO shop_server@localhost;
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON shop._spile_idempotency TO shop_server@localhost;
