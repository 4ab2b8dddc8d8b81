"""Programs of stock clients that publish for as long as their standard input is open."""
