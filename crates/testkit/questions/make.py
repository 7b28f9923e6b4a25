"""Makes the databases of the question set: `python make.py` writes `chinook.sql` and `northwind.sql`.

A music shop and a wholesaler, small, with the shapes of the well-known examples: keys that are numbers, texts and pairs,
columns without values, a table that refers to itself, names with capitals and blanks. Every run writes the same rows.
"""

import datetime
import pathlib

HERE = pathlib.Path(__file__).parent


class Numbers:
    """A linear congruential generator: the same numbers with every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def one_of(self, items):
        return items[self.below(len(items))]


def literal(value):
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, (int, float)) else "'" + value.replace("'", "''") + "'"


def write(name, schema, tables):
    out = [schema.strip(), ""]
    for table, rows in tables:
        quoted = f'"{table}"' if " " in table else table
        out.append(f"INSERT INTO {quoted} VALUES")
        out.append(",\n".join("  (" + ", ".join(map(literal, row)) + ")" for row in rows) + ";")
    (HERE / name).write_text("\n".join(out) + "\n")


def day(start, days):
    return (datetime.date.fromisoformat(start) + datetime.timedelta(days=days)).isoformat()


CHINOOK = """
CREATE TABLE artists (ArtistId INTEGER PRIMARY KEY, Name NVARCHAR(120));
CREATE TABLE genres (GenreId INTEGER PRIMARY KEY, Name NVARCHAR(120));
CREATE TABLE media_types (MediaTypeId INTEGER PRIMARY KEY, Name NVARCHAR(120));
CREATE TABLE albums (
  AlbumId INTEGER PRIMARY KEY, Title NVARCHAR(160) NOT NULL,
  ArtistId INTEGER NOT NULL REFERENCES artists (ArtistId));
CREATE TABLE tracks (
  TrackId INTEGER PRIMARY KEY, Name NVARCHAR(200) NOT NULL, AlbumId INTEGER REFERENCES albums,
  MediaTypeId INTEGER NOT NULL REFERENCES media_types (MediaTypeId), GenreId INTEGER REFERENCES genres (GenreId),
  Composer NVARCHAR(220), Milliseconds INTEGER NOT NULL, Bytes INTEGER, UnitPrice NUMERIC(10,2) NOT NULL);
CREATE TABLE employees (
  EmployeeId INTEGER PRIMARY KEY, LastName NVARCHAR(20) NOT NULL, FirstName NVARCHAR(20) NOT NULL, Title NVARCHAR(30),
  ReportsTo INTEGER REFERENCES employees (EmployeeId), HireDate DATE, City NVARCHAR(40));
CREATE TABLE customers (
  CustomerId INTEGER PRIMARY KEY, FirstName NVARCHAR(40) NOT NULL, LastName NVARCHAR(20) NOT NULL, Company NVARCHAR(80),
  City NVARCHAR(40), Country NVARCHAR(40), Email NVARCHAR(60) NOT NULL,
  SupportRepId INTEGER REFERENCES employees (EmployeeId));
CREATE TABLE invoices (
  InvoiceId INTEGER PRIMARY KEY, CustomerId INTEGER NOT NULL REFERENCES customers (CustomerId),
  InvoiceDate DATE NOT NULL, BillingCity NVARCHAR(40), BillingCountry NVARCHAR(40), Total NUMERIC(10,2) NOT NULL);
CREATE TABLE invoice_items (
  InvoiceLineId INTEGER PRIMARY KEY, InvoiceId INTEGER NOT NULL REFERENCES invoices (InvoiceId),
  TrackId INTEGER NOT NULL REFERENCES tracks (TrackId), UnitPrice NUMERIC(10,2) NOT NULL, Quantity INTEGER NOT NULL);
CREATE TABLE playlists (PlaylistId INTEGER PRIMARY KEY, Name NVARCHAR(120));
CREATE TABLE playlist_track (
  PlaylistId INTEGER NOT NULL REFERENCES playlists (PlaylistId), TrackId INTEGER NOT NULL REFERENCES tracks (TrackId),
  PRIMARY KEY (PlaylistId, TrackId));
CREATE INDEX invoice_items_by_invoice ON invoice_items (InvoiceId);
"""


def chinook():
    random = Numbers(1)
    artists = [
        "AC/DC", "Accept", "Aerosmith", "Alanis Morissette", "Antônio Carlos Jobim", "Apocalyptica", "Audioslave",
        "Black Sabbath", "Caetano Veloso", "Chico Buarque", "Deep Purple", "Die Ärzte", "Queen", "U2", "Unplayed",
    ]
    genres = ["Rock", "Jazz", "Metal", "Latin", "Classical", "Opera"]
    media = ["MPEG audio file", "Protected AAC audio file", "Purchased AAC audio file"]
    words = ["Blue", "Night", "Love", "Thunder", "River", "Glass", "Stone", "Fire", "Winter", "Gold", "Dream", "Road"]
    albums = [
        (at, f"{random.one_of(words)} {random.one_of(words)}", 1 + (at * 5) % 14) for at in range(1, 26)
    ]
    tracks = []
    for at in range(1, 121):
        tracks.append((
            at,
            f"{random.one_of(words)} of {random.one_of(words)} {at}",
            None if at % 40 == 0 else 1 + random.below(25),
            1 + (at % 7 == 0) + (at % 31 == 0),
            None if at % 29 == 0 else 1 + random.below(5),
            None if at % 3 == 0 else f"{random.one_of(artists[:6])}, {random.one_of(words)}",
            90_000 + random.below(400_000),
            None if at % 17 == 0 else 1_000_000 + random.below(9_000_000),
            1.99 if at % 11 == 0 else 0.99,
        ))
    employees = [
        (1, "Adams", "Andrew", "General Manager", None, "2002-08-14", "Edmonton"),
        (2, "Edwards", "Nancy", "Sales Manager", 1, "2002-05-01", "Calgary"),
        (3, "Peacock", "Jane", "Sales Support Agent", 2, "2002-04-01", "Calgary"),
        (4, "Park", "Margaret", "Sales Support Agent", 2, "2003-05-03", "Calgary"),
        (5, "Johnson", "Steve", "Sales Support Agent", 2, "2003-10-17", "Calgary"),
        (6, "Mitchell", "Michael", "IT Manager", 1, "2003-10-17", "Calgary"),
    ]
    places = [
        ("Berlin", "Germany"), ("Stuttgart", "Germany"), ("Paris", "France"), ("Lyon", "France"), ("Oslo", "Norway"),
        ("São Paulo", "Brazil"), ("Prague", "Czech Republic"), ("Boston", "USA"), ("Chicago", "USA"), ("Delhi", "India"),
    ]
    first = ["Luís", "Leonie", "François", "Bjørn", "František", "Helena", "Astrid", "Daan", "Kara", "Eduardo"]
    last = ["Gonçalves", "Köhler", "Tremblay", "Hansen", "Wichterlová", "Holý", "Gruber", "Peeters", "Nielsen", "O'Reilly"]
    customers = []
    for at in range(1, 25):
        city, country = places[random.below(10)]
        name = (first[at % 10], last[(at * 3) % 10])
        company = f"{name[1]} & Co" if at % 4 == 0 else None
        email = f"customer{at}@example.test"
        customers.append((at, *name, company, city, country, email, None if at == 24 else 3 + at % 3))
    invoices, items, line = [], [], 0
    for at in range(1, 71):
        customer = customers[random.below(22)]
        total, bought = 0, []
        for _ in range(1 + random.below(5)):
            line += 1
            track = tracks[random.below(118)]
            quantity = 1 + (random.below(9) == 0)
            bought.append((line, at, track[0], track[8], quantity))
            total += round(track[8] * 100) * quantity
        items += bought
        date = day("2024-01-03", at * 10 + random.below(9))
        billing = (None, customer[5]) if at % 13 == 0 else (customer[4], customer[5])
        invoices.append((at, customer[0], date, *billing, total / 100))
    playlists = [(1, "Music"), (2, "90’s Music"), (3, "Heavy Metal Classic"), (4, "Empty")]
    pairs = sorted({(1 + random.below(3), 1 + random.below(120)) for _ in range(80)})
    numbered = lambda names: [(at + 1, name) for at, name in enumerate(names)]
    write("chinook.sql", CHINOOK, [
        ("artists", numbered(artists)), ("genres", numbered(genres)), ("media_types", numbered(media)),
        ("albums", albums), ("tracks", tracks), ("employees", employees), ("customers", customers),
        ("invoices", invoices), ("invoice_items", items), ("playlists", playlists), ("playlist_track", pairs),
    ])


NORTHWIND = """
CREATE TABLE Categories (CategoryID INTEGER PRIMARY KEY, CategoryName TEXT, Description TEXT);
CREATE TABLE Suppliers (SupplierID INTEGER PRIMARY KEY, CompanyName TEXT NOT NULL, Country TEXT);
CREATE TABLE Products (
  ProductID INTEGER PRIMARY KEY, ProductName TEXT NOT NULL, SupplierID INTEGER, CategoryID INTEGER, UnitPrice NUMERIC,
  UnitsInStock INTEGER, Discontinued BOOLEAN NOT NULL,
  FOREIGN KEY (CategoryID) REFERENCES Categories (CategoryID), FOREIGN KEY (SupplierID) REFERENCES Suppliers (SupplierID));
CREATE TABLE Customers (CustomerID TEXT PRIMARY KEY NOT NULL, CompanyName TEXT, City TEXT, Country TEXT, Fax TEXT);
CREATE TABLE Employees (
  EmployeeID INTEGER PRIMARY KEY, LastName TEXT, FirstName TEXT, BirthDate DATE,
  ReportsTo INTEGER REFERENCES Employees (EmployeeID));
CREATE TABLE Shippers (ShipperID INTEGER PRIMARY KEY, CompanyName TEXT NOT NULL);
CREATE TABLE Orders (
  OrderID INTEGER PRIMARY KEY, CustomerID TEXT REFERENCES Customers (CustomerID),
  EmployeeID INTEGER REFERENCES Employees (EmployeeID), OrderDate DATE, RequiredDate DATE, ShippedDate DATE,
  ShipVia INTEGER REFERENCES Shippers (ShipperID), Freight NUMERIC);
CREATE TABLE "Order Details" (
  OrderID INTEGER NOT NULL REFERENCES Orders (OrderID), ProductID INTEGER NOT NULL REFERENCES Products (ProductID),
  UnitPrice NUMERIC NOT NULL, Quantity INTEGER NOT NULL, Discount NUMERIC NOT NULL, PRIMARY KEY (OrderID, ProductID));
"""


def northwind():
    random = Numbers(2)
    categories = [
        (1, "Beverages", "Soft drinks, coffees, teas, beers, and ales"), (2, "Condiments", None),
        (3, "Confections", "Desserts, candies, and sweet breads"), (4, "Dairy Products", "Cheeses"),
        (5, "Produce", "Dried fruit and bean curd"),
    ]
    suppliers = [
        (1, "Exotic Liquids", "UK"), (2, "Tokyo Traders", "Japan"), (3, "Heli Süßwaren", "Germany"),
        (4, "Norske Meierier", "Norway"), (5, "Grandma Kelly's Homestead", "USA"), (6, "Idle Supplies", None),
    ]
    names = ["Chai", "Chang", "Aniseed Syrup", "Tofu", "Pavlova", "Konbu", "Geitost", "Gumbär", "Ipoh Coffee", "Longlife"]
    products = []
    for at in range(1, 31):
        name = names[at % 10] if at <= 10 else f"{names[at % 10]} {at}"
        stock = None if at % 19 == 0 else random.below(60) - (at % 23 == 0)
        products.append((
            at, name, None if at == 30 else 1 + random.below(5), None if at == 29 else 1 + random.below(5),
            (250 + random.below(9000)) / 100, stock, int(at % 9 == 0),
        ))
    places = [
        ("ALFKI", "Alfreds Futterkiste", "Berlin", "Germany"), ("ANATR", "Ana Trujillo", "México D.F.", "Mexico"),
        ("AROUT", "Around the Horn", "London", "UK"), ("BERGS", "Berglunds snabbköp", "Luleå", "Sweden"),
        ("BLAUS", "Blauer See Delikatessen", "Mannheim", "Germany"), ("BONAP", "Bon app'", "Marseille", "France"),
        ("CHOPS", "Chop-suey Chinese", "Bern", "Switzerland"), ("DRACD", "Drachenblut", "Aachen", "Germany"),
        ("FISSA", "FISSA Fabrica", "Madrid", "Spain"), ("PARIS", "Paris spécialités", "Paris", "France"),
    ]
    customers = [(*place, None if at % 3 else f"0{at}0-4711") for at, place in enumerate(places)]
    employees = [
        (1, "Davolio", "Nancy", "1968-12-08", 2), (2, "Fuller", "Andrew", "1952-02-19", None),
        (3, "Leverling", "Janet", "1963-08-30", 2), (4, "Peacock", "Margaret", "1958-09-19", 2),
        (5, "Buchanan", "Steven", "1955-03-04", 2), (6, "Suyama", "Michael", "1963-07-02", 5),
    ]
    shippers = [(1, "Speedy Express"), (2, "United Package"), (3, "Federal Shipping")]
    orders, details = [], []
    for at in range(10248, 10328):
        ordered = (at - 10248) * 9 + random.below(8)
        shipped = None if random.below(7) == 0 else day("2025-01-02", ordered + 2 + random.below(12))
        customer = None if at == 10300 else places[random.below(8)][0]
        orders.append((
            at, customer, 1 + random.below(5), day("2025-01-02", ordered), day("2025-01-02", ordered + 10), shipped,
            1 + random.below(3), random.below(9000) / 100,
        ))
        for product in sorted({1 + random.below(28) for _ in range(1 + random.below(4))}):
            price = products[product - 1][4]
            details.append((at, product, price, 1 + random.below(40), [0, 0, 0, 0.05, 0.1, 0.25][random.below(6)]))
    write("northwind.sql", NORTHWIND, [
        ("Categories", categories), ("Suppliers", suppliers), ("Products", products), ("Customers", customers),
        ("Employees", employees), ("Shippers", shippers), ("Orders", orders), ("Order Details", details),
    ])


if __name__ == "__main__":
    chinook()
    northwind()
