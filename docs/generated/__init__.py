"""Pages that are made from the code and from the committed rows when the site is built."""
