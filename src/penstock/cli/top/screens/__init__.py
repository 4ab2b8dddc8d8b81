"""The screens of `penstock top`, made with Textual, which nothing outside this package imports.

    app      the main screen: the lines about the broker, the table of clients, the keys
    client   the screen of one client: its window, queue, limits and drops
    prompt   a question with one line to answer, and a page of text

Texts of clients are escaped already (``penstock.cli.top.columns``, ``pictures``), and are shown as
`Text` of Rich, so that no bracket in them is markup.
"""
